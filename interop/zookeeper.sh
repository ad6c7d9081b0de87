# Our server and our shell, each against ZooKeeper's own other half; part of script/interop.
#
# ZooKeeper's shell is its Java client: what it does on our server, Java programs can do. Our shell is kazoo, which
# tests/coordination and tests/tools try on our server; here it meets a real one.

zookeeper_version=3.9.4
zookeeper_super=super:$(printf super:secret | openssl sha1 -binary | base64)  # who may do everything, on both servers
zookeeper_jars=$PWD/.cache/apache-zookeeper-$zookeeper_version

fetch_zookeeper() {
    if [ -d "$zookeeper_jars" ]; then return; fi
    echo "fetching Apache ZooKeeper $zookeeper_version by Maven ..."
    mvn -q -f interop/zookeeper/pom.xml dependency:copy-dependencies -DoutputDirectory="$work/zookeeper-jars"
    mkdir -p .cache
    mv "$work/zookeeper-jars" "$zookeeper_jars"
}

start_our_zookeeper() { # NAME FOLDER ADDRESS; sets $zookeeper
    local name=$1 folder=$2 tries
    : >"$work/$name.ready"
    .venv/bin/headrace zookeeper --data "$folder" --listen "$3" \
        -o "DigestAuthenticationProvider.superDigest=$zookeeper_super" >"$work/$name.ready" 2>"$work/$name.log" &
    echo $! >"$work/$name.pid"
    disown  # it is killed on purpose, which bash need not tell
    for ((tries = 0; tries < 300; tries++)); do
        zookeeper=$(sed -n 's/^ready //p' "$work/$name.ready")
        if [ -n "$zookeeper" ]; then return 0; fi
        sleep 0.1
    done
    echo "headrace zookeeper did not start:" >&2
    tail -n 5 "$work/$name.log" >&2
    return 1
}

start_real_zookeeper() { # NAME FOLDER; sets $zookeeper
    local name=$1 folder=$2 tries
    zookeeper=127.0.0.1:$(free_port)
    cat >"$work/$name.cfg" <<-END
		tickTime=2000
		dataDir=$folder
		clientPort=${zookeeper##*:}
		clientPortAddress=127.0.0.1
		admin.enableServer=false
	END
    java -Xmx256m -XX:+UseSerialGC "-Dzookeeper.DigestAuthenticationProvider.superDigest=$zookeeper_super" -cp "$zookeeper_jars/*" org.apache.zookeeper.server.ZooKeeperServerMain \
        "$work/$name.cfg" >"$work/$name.log" 2>&1 &
    echo $! >"$work/$name.pid"
    for ((tries = 0; tries < 20; tries++)); do
        if shell_of_ours --timeout 2000 ls / >/dev/null 2>&1; then return 0; fi
    done
    echo "ZooKeeper did not start:" >&2
    tail -n 5 "$work/$name.log" >&2
    return 1
}

shell_of_ours() { headrace zookeeper-shell "$zookeeper" "$@"; }

# Without its greetings, and without what it says of the connection.
shell_of_theirs() {
    bounded java -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$zookeeper_jars/*" \
        org.apache.zookeeper.ZooKeeperMain -server "$zookeeper" "$@" 2> >(sed -u /SLF4J/d >&2) |
        sed -u -E '/^(Connecting to |Welcome to ZooKeeper|JLine support|WATCHER::$|WatchedEvent state:.* type:None )/d; /^$/d'
}

both_streams() { "$@" 2>&1; }

zk_one_command() {
    expect '^Created /one$' both_streams shell_of_theirs create /one hello
    expect '^hello$' shell_of_theirs get /one
    expect '^dataVersion = 0$' shell_of_theirs get -s /one
    shell_of_theirs set -v 0 /one again
    fails shell_of_theirs set -v 0 /one late
    expect '^dataVersion = 1$' shell_of_theirs stat /one
    expect '^\[.*one.*\]$' shell_of_theirs ls /
    shell_of_theirs delete /one
    fails shell_of_theirs get /one
}

# Both shells print Created and refusals to one stream or the other; here all counts, in order.
zk_lines() {
    cat <<-'END'
		create /lines
		create /lines/a {"json":1}
		get /lines/a
		create -s /lines/n- first
		create -s /lines/n- second
		create -e /lines/mine x
		ls /lines
		stat /lines
		ls -s /lines
		get -s /lines/a
		set /lines/a "two words"
		get /lines/a
		set -v 7 /lines/a late
		set -s -v 1 /lines/a right
		create /lines/mine/child
		create /lines/a
		create /nowhere/a
		delete /lines
		delete -v 9 /lines/a
		delete /lines/a
		get /lines/a
		ls -R /lines
		stat /nowhere
		addauth digest alice:wonderland
		create /lines/mine-only x auth::cdrwa,world:anyone:r
		getAcl /lines/mine-only
		setAcl -v 3 /lines/mine-only world:anyone:cdrwa
		setAcl -s /lines/mine-only world:anyone:rw
		getAcl -s /lines/mine-only
		setAcl /lines/mine-only world:anyone:cdrwa
		getAcl /nowhere
		deleteall /lines
		ls -R /lines
		sync /
		quit
	END
}

# Times, transaction ids and session ids differ from run to run.
zk_masked() { sed -E 's/^([cm]time =).*/\1/; s/^([cmp]Zxid = 0x|ephemeralOwner = 0x)[0-9a-f]+/\1/'; }

zk_same_lines() { # FILE: both shells answer these lines alike, with either server
    # Each shell is asked with a line at a time on two streams; only together they are in order.
    zk_lines | shell_of_theirs 2>&1 | zk_masked | sort >"$work/theirs.$1"
    { zk_lines | shell_of_ours 2>&1 || true; } | zk_masked | sort >"$work/ours.$1"
    diff "$work/theirs.$1" "$work/ours.$1"
}

zk_same_servers() {
    diff "$work/theirs.real" "$work/theirs.served"
    diff "$work/ours.real" "$work/ours.served"
}

zk_alike() { bounded .venv/bin/python interop/zookeeper/alike.py "$1" "$2" 100; }

zk_watches() {
    printf '%s\n' 'create /w' 'addWatch -m PERSISTENT_RECURSIVE /w' 'create /w/a 1' 'set /w/a 2' 'removewatches /w' \
        'get -w /w/a' 'set /w/a 3' 'set /w/a 4' 'deleteall /w' 'sync /' quit |
        shell_of_theirs >"$work/watches.out" 2>&1
    same 'events of creation' "$(grep -c 'type:NodeCreated path:/w/a' "$work/watches.out")" 1
    same 'events of changes' "$(grep -c 'type:NodeDataChanged path:/w/a' "$work/watches.out")" 2
    expect 'type:PersistentWatchRemoved path:/w' cat "$work/watches.out"
}

# A Java client whose server dies and is started again: its session, its ephemeral znode and its watches are still there.
zk_comes_back() {
    local lines="$work/lines.fifo" said="$work/back.out" shell
    mkfifo "$lines"
    shell_of_theirs <"$lines" >"$said" 2>&1 &
    shell=$!
    exec 9>"$lines"
    printf '%s\n' 'create /back' 'create -e /back/mine x' 'get -w /back' 'ls -w /back/mine' >&9
    zk_wait_for 'Created /back/mine' "$said"
    zk_wait_for '^\[\]$' "$said"
    kill -9 "$(cat "$work/zk-ours.pid")"
    start_our_zookeeper zk-ours "$work/zk-ours" "$zookeeper"
    expect '^x$' shell_of_ours get /back/mine
    printf '%s\n' 'set /back changed' 'delete /back/mine' 'deleteall /back' quit >&9
    exec 9>&-
    zk_wait_for 'type:NodeDataChanged path:/back( |$)' "$said"
    zk_wait_for 'type:NodeDeleted path:/back/mine' "$said"
    wait "$shell"
}

zk_wait_for() { # PATTERN FILE
    local tries
    for ((tries = 0; tries < 300; tries++)); do
        if grep -qE "$1" "$2"; then return 0; fi
        sleep 0.1
    done
    echo "'$1' is not in:"
    cat "$2"
    return 1
}

zookeeper_checks() {
    local ours
    start_our_zookeeper zk-ours "$work/zk-ours" 127.0.0.1:0
    ours=$zookeeper
    check 'zookeeper: its shell on our server, a command at a time' zk_one_command
    check 'zookeeper: its shell and ours say the same on our server' zk_same_lines served
    check 'zookeeper: its watches on our server' zk_watches
    check 'zookeeper: its shell survives kill -9 of our server' zk_comes_back
    start_real_zookeeper zk-real "$work/zk-real"
    check 'zookeeper: its shell and ours say the same on its server' zk_same_lines real
    check 'zookeeper: either server makes a shell say the same' zk_same_servers
    check 'zookeeper: both servers answer random requests alike' zk_alike "$ours" "$zookeeper"
    stop_broker zk-real
    check 'zookeeper: our server stops cleanly' stop_broker zk-ours
}
