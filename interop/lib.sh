# What the parts of script/interop share. A check is one line of output:
#
#     ok       NAME (seconds)
#     FAILED   NAME: reason
#     skipped  NAME: reason
#
# A check is a function, run in a subshell that ends at its first failing command. Every command that talks to a broker
# goes through `bounded`, `tool` or `headrace`, which end it in time.

failed_checks=0
passed_checks=0
skipped_checks=0

report() { # ok|FAILED|skipped NAME [REASON]
    case $1 in
        ok) passed_checks=$((passed_checks + 1)) ;;
        FAILED) failed_checks=$((failed_checks + 1)) ;;
        skipped) skipped_checks=$((skipped_checks + 1)) ;;
    esac
    printf '%-8s %s%s\n' "$1" "$2" "${3:+: $3}"
}

check() { # NAME FUNCTION [ARGUMENT...]
    local name=$1 started=$SECONDS code
    shift
    set +e
    (
        set -eEo pipefail
        trap 'echo "this failed: $BASH_COMMAND"' ERR
        "$@"
    ) >"$work/check.out" 2>&1
    code=$?
    set -e
    if [ "$code" = 0 ]; then
        report ok "$name ($((SECONDS - started)) s)"
    else
        report FAILED "$name" "exit code $code; the end of its output:"
        tail -n 15 "$work/check.out" | cut -c1-300 | sed 's/^/             /'
    fi
}

# A program of ours that runs several checks and prints such lines itself, and `done` as its last one.
program() { # NAME SECONDS COMMAND...
    local name=$1 limit=$2 outcome rest is_done=no
    shift 2
    timeout --kill-after=5 "$limit" "$@" >"$work/program.out" 2>"$work/program.err" || true
    while IFS=' ' read -r outcome rest; do
        case $outcome in
            ok | FAILED | skipped) report "$outcome" "$name: $rest" ;;
            done) is_done=yes ;;
        esac
    done <"$work/program.out"
    if [ "$is_done" = no ]; then
        report FAILED "$name" "ended early, or not within $limit s; the end of its output:"
        cat "$work/program.out" "$work/program.err" | sed /SLF4J/d | tail -n 15 | cut -c1-300 | sed 's/^/             /'
    fi
}

bounded() { timeout --kill-after=5 60 "$@"; }

java_small() { # CLASS ARGUMENT...; standard error without the complaint that nobody reads its log
    bounded java -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$jars/*:$classes" "$@" 2> >(sed /SLF4J/d >&2)
}

tool() { # a class of org.apache.kafka.tools and its arguments
    local class=$1
    shift
    java_small "org.apache.kafka.tools.$class" "$@"
}

headrace() { bounded .venv/bin/headrace "$@"; }

fails() { # COMMAND...: it must fail
    if "$@"; then
        echo "this should have failed: $*"
        return 1
    fi
}

expect() { # PATTERN COMMAND...: its output has a line that matches
    local pattern=$1
    shift
    "$@" >"$work/expect.out"
    grep -qE -- "$pattern" "$work/expect.out" || {
        echo "no line of this matches '$pattern':"
        tail -n 12 "$work/expect.out"
        return 1
    }
}

lacks() { # PATTERN COMMAND...: it succeeds, and its output has no line that matches
    local pattern=$1
    shift
    "$@" >"$work/expect.out"
    if grep -E -- "$pattern" "$work/expect.out"; then
        echo "no line should match '$pattern'"
        return 1
    fi
}

same() { # WHAT LEFT RIGHT
    [ "$2" = "$3" ] || {
        echo "$1: '$2' is not '$3'"
        return 1
    }
}

free_port() { .venv/bin/python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# -- brokers. Each leaves its process id in a file of $work, so that the end of the script finds all of them.

start_headrace() { # NAME FOLDER [OPTION...]; sets $address
    local name=$1 folder=$2 tries
    shift 2
    : >"$work/$name.ready"
    .venv/bin/headrace start --data "$folder" --listen 127.0.0.1:0 "$@" >"$work/$name.ready" 2>"$work/$name.log" &
    echo $! >"$work/$name.pid"
    for ((tries = 0; tries < 300; tries++)); do
        address=$(sed -n 's/^ready //p' "$work/$name.ready")
        if [ -n "$address" ]; then return 0; fi
        sleep 0.1
    done
    echo "headrace did not start:" >&2
    tail -n 5 "$work/$name.log" >&2
    return 1
}

start_apache() { # NAME FOLDER [SETTING=VALUE...]; sets $address
    local name=$1 folder=$2 port controller_port tries
    shift 2
    port=$(free_port)
    controller_port=$(free_port)
    cat >"$work/$name.properties" <<-END
		process.roles=broker,controller
		node.id=1
		controller.quorum.voters=1@127.0.0.1:$controller_port
		listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller_port
		advertised.listeners=PLAINTEXT://127.0.0.1:$port
		controller.listener.names=CONTROLLER
		listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
		log.dirs=$folder
		offsets.topic.replication.factor=1
		transaction.state.log.replication.factor=1
		transaction.state.log.min.isr=1
		transaction.state.log.num.partitions=2
	END
    printf '%s\n' "$@" >>"$work/$name.properties"
    java_small kafka.tools.StorageTool format -t headrace-interop-00000 -c "$work/$name.properties" >"$work/$name.log" 2>&1
    java -Xmx512m -XX:+UseSerialGC -cp "$jars/*" kafka.Kafka "$work/$name.properties" >>"$work/$name.log" 2>&1 &
    echo $! >"$work/$name.pid"
    address=127.0.0.1:$port
    for ((tries = 0; tries < 20; tries++)); do
        if tool ClusterTool cluster-id --bootstrap-server "$address" >/dev/null 2>&1; then return 0; fi
    done
    echo "Apache Kafka did not start:" >&2
    tail -n 5 "$work/$name.log" >&2
    return 1
}

stop_broker() { # NAME; ends in time, cleanly
    local pid tries
    pid=$(cat "$work/$1.pid")
    rm "$work/$1.pid"
    kill "$pid"
    for ((tries = 0; tries < 300; tries++)); do
        if ! kill -0 "$pid" 2>/dev/null; then return 0; fi
        sleep 0.1
    done
    echo "$1 does not stop" >&2
    kill -9 "$pid"
    return 1
}

stop_everything() {
    local file
    for file in "$work"/*.pid; do
        if [ -e "$file" ]; then kill -9 "$(cat "$file")" 2>/dev/null || true; fi
    done
    rm -rf "$work"
}
