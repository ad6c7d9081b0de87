# Three Headraces on a real ZooKeeper, and what people have pointed at a Kafka cluster until now: Apache's tools, its Java
# clients while brokers die, ZooKeeper's shell; part of script/interop. Their ids are 0, 1 and 2, and topics have three
# replicas where nobody says otherwise, so that what the other parts check of one broker is checked of three as well.

member_ids=(0 1 2)
declare -A member_addresses

start_member() { # ID; again on its port, if it was there before
    local listen=${member_addresses[$1]:-127.0.0.1:0}
    start_headrace "member-$1" "$work/member-$1" --zookeeper "$zookeeper" --broker-id "$1" --listen "$listen" \
        --log-level warning -o default.replication.factor=3 -o group.initial.rebalance.delay.ms=300 \
        -o zookeeper.session.timeout.ms=6000 -o offsets.topic.num.partitions=10 -o transaction.state.log.num.partitions=10
    member_addresses[$1]=$address
    disown # it is killed on purpose, which bash need not tell
}

kill_member() { kill -9 "$(cat "$work/member-$1.pid")"; } # ID

at_all() { local IFS=,; address="${member_addresses[*]}"; }

describe() { tool TopicCommand $(at) --describe --topic "$1"; }

leader_of() { describe "$1" | sed -nE "s/.*Partition: $2\s+Leader: ([0-9]+).*/\1/p"; } # TOPIC PARTITION

until_so() { # PATTERN COMMAND...: within 30 seconds or so its output has a line that matches
    local tries pattern=$1
    shift
    for ((tries = 0; tries < 15; tries++)); do
        if "$@" | grep -qE -- "$pattern"; then return 0; fi
        sleep 1
    done
    echo "no line of this has come to match '$pattern':"
    "$@"
    return 1
}

lacks_soon() { # PATTERN COMMAND...: within 30 seconds or so its output has no such line any more
    local tries pattern=$1
    shift
    for ((tries = 0; tries < 15; tries++)); do
        if ! "$@" | grep -qE -- "$pattern"; then return 0; fi
        sleep 1
    done
    echo "a line still matches '$pattern':"
    "$@"
    return 1
}

znodes() {
    tool TopicCommand $(at) --create --topic seen --partitions 1 --replication-factor 3 --config min.insync.replicas=2
    expect '^\[0, 1, 2\]$' shell_of_theirs ls /brokers/ids
    expect "\"endpoints\":\[\"PLAINTEXT://${member_addresses[1]}\"\]" shell_of_theirs get /brokers/ids/1
    expect '^\{"version":[12],"brokerid":[012],"timestamp":"[0-9]+"' shell_of_theirs get /controller
    expect '^[1-9][0-9]*$' shell_of_theirs get /controller_epoch
    expect '"partitions":\{"0":\[[012],[012],[012]\]\}' shell_of_theirs get /brokers/topics/seen
    expect '^\{"controller_epoch":[0-9]+,"leader":[012],"version":1,"leader_epoch":0,"isr":\[[012],[012],[012]\]\}$' \
        shell_of_theirs get /brokers/topics/seen/partitions/0/state
    expect '^\{"version":1,"config":\{"min.insync.replicas":"2"\}\}$' shell_of_theirs get /config/topics/seen
    expect '^\{"version":"1","id":"[A-Za-z0-9_-]{22}"\}$' shell_of_theirs get /cluster/id
    expect '^\[.*seen.*\]$' shell_of_theirs ls /brokers/topics
    expect 'ephemeralOwner = 0x[1-9a-f]' shell_of_theirs stat /brokers/ids/2
}

controller_moves() { # by hand: nobody who produces notices
    local epoch
    epoch=$(shell_of_theirs get /controller_epoch)
    shell_of_theirs delete /controller
    until_so "^$((epoch + 1))$" shell_of_theirs get /controller_epoch
    expect '"brokerid":[012]' shell_of_theirs get /controller
    tool TopicCommand $(at) --create --topic after-the-move
}

# A Java producer (acks=all) and a Java consumer in a group, while the leader of a partition is killed with -9 and comes
# back, and then the controller.
kills_under_load() {
    local load victim
    tool TopicCommand $(at) --create --topic load --partitions 6 --replication-factor 3 --config min.insync.replicas=2
    rm -f "$work/load.stop"
    timeout --kill-after=5 240 java -Xmx256m -XX:+UseSerialGC -cp "$jars/*:$classes" interop.Main load "$address" load \
        "$work/load.stop" >"$work/load.out" 2>"$work/load.err" &
    load=$!
    zk_wait_for '^flowing$' "$work/load.out"
    for victim in "$(leader_of load 0)" "$(shell_of_theirs get /controller | sed -E 's/.*"brokerid":([0-9]+).*/\1/')"; do
        kill_member "$victim"
        until_so 'Isr: [012],[012]\s' describe load # without it
        start_member "$victim"
        at_all
        lacks_soon . tool TopicCommand $(at) --describe --under-replicated-partitions
    done
    touch "$work/load.stop"
    wait "$load"
    cat "$work/load.out" "$work/load.err"
    expect '^acknowledged ([0-9]{3,}) refused 0 read \1 misplaced 0 ' cat "$work/load.out"
}

elections() {
    # A broker that was killed leads again the partitions for which it is the preferred leader.
    tool LeaderElectionCommand $(at) --election-type preferred --all-topic-partitions
    local partition preferred
    for partition in 0 3 5; do
        preferred=$(describe load | sed -nE "s/.*Partition: $partition\s.*Replicas: ([0-9]+),.*/\1/p")
        same "leader of load-$partition" "$(leader_of load $partition)" "$preferred"
    done
    expect 'Valid replica already elected' tool LeaderElectionCommand $(at) --election-type preferred --topic load --partition 0
    fails tool LeaderElectionCommand $(at) --election-type preferred --topic load --partition 99
}

moves() { tool reassign.ReassignPartitionsCommand $(at) "$@"; }

reassignments() {
    tool TopicCommand $(at) --create --topic moved --replica-assignment 0:1,1:2
    tool ProducerPerformance $(at) --topic moved --num-records 6000 --record-size 1000 --throughput -1
    echo '{"version": 1, "topics": [{"topic": "moved"}]}' >"$work/topics.json"
    expect '"topic":"moved","partition":1,"replicas":\[[012],[012]\]' \
        moves --generate --topics-to-move-json-file "$work/topics.json" --broker-list 0,1,2
    cat >"$work/plan.json" <<-END
		{"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [2]},
		                              {"topic": "moved", "partition": 1, "replicas": [0, 1, 2]}]}
	END
    # So slow that it can be seen and taken back, and then in its own time.
    expect 'throttle limit was set to 2000' moves --execute --reassignment-json-file "$work/plan.json" --throttle 2000
    expect '^moved-0: replicas: 2,0,1. adding: 2. removing: 0,1.$' moves --list
    expect 'moved-1 is still in progress' moves --verify --reassignment-json-file "$work/plan.json"
    expect 'Successfully cancelled partition reassignments for: moved-0,moved-1' \
        moves --cancel --reassignment-json-file "$work/plan.json"
    expect 'Partition: 0\s+Leader: 0\s+Replicas: 0,1\s' describe moved
    moves --execute --reassignment-json-file "$work/plan.json" --throttle 50000000
    lacks_soon 'in progress' moves --verify --reassignment-json-file "$work/plan.json"
    moves --verify --reassignment-json-file "$work/plan.json"
    expect 'Partition: 0\s+Leader: 2\s+Replicas: 2\s+Isr: 2\s' describe moved
    expect 'Partition: 1\s+Leader: [012]\s+Replicas: 0,1,2\s+Isr: [012],[012],[012]\s' describe moved
    lacks 'throttled' config --describe --topic moved
    lacks 'throttled' config --describe --broker 2
    same records "$(tool GetOffsetShell $(at) --topic moved | awk -F: '{ sum += $3 } END { print sum }')" 6000
    echo '{"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [9]}]}' >"$work/plan.json"
    fails moves --execute --reassignment-json-file "$work/plan.json"
}

verifiable() {
    tool TopicCommand $(at) --create --topic verified --partitions 3
    tool VerifiableProducer $(at) --topic verified --max-messages 500 --acks -1 >"$work/verified.out"
    expect '"acked":500' cat "$work/verified.out"
    tool VerifiableConsumer $(at) --topic verified --group-id verified --max-messages 500 --reset-policy earliest \
        >"$work/verified.out"
    expect '"name":"shutdown_complete"' cat "$work/verified.out"
}

cluster_tools() {
    expect '^2 .*unfenced +broker' tool ClusterTool list-endpoints $(at)
    tool LogDirsCommand $(at) --describe --topic-list load >"$work/dirs.out"
    local id
    for id in "${member_ids[@]}"; do expect "\"broker\":$id,\"logDirs\":\[\{.*\"partition\":\"load-5\"" cat "$work/dirs.out"; done
}

# Of several brokers these clients ask any, which may hear a moment later of what another has done. Their tests were written
# for one: what fails gets a second chance.
python_clients() {
    local pytest="timeout --kill-after=5 600 .venv/bin/pytest -n 0 -q -o cache_dir=$work/pytest" # unquoted where it is used
    export HEADRACE_TEST_BROKERS=3
    $pytest tests/interop --deselect tests/interop/test_changes_while_clients_run.py || $pytest --last-failed tests/interop
}

cluster_checks() {
    local id
    start_real_zookeeper zk-cluster "$work/zk-cluster"
    zookeeper=$zookeeper/headrace
    for id in "${member_ids[@]}"; do start_member "$id"; done
    at_all
    check "cluster: ZooKeeper's shell shows brokers, controller and topics" znodes
    check 'cluster: Java clients while a leader and the controller are killed' kills_under_load
    check 'cluster: kafka-leader-election' elections
    check 'cluster: kafka-reassign-partitions, with a throttle, cancelled, to more and to fewer replicas' reassignments
    check "cluster: ZooKeeper's shell moves the controller" controller_moves
    check 'cluster: kafka-topics' topics
    check 'cluster: kafka-configs' configs
    check 'cluster: kafka-console-producer and -consumer' console
    check 'cluster: kafka-producer-perf-test' producer_perf
    check 'cluster: kafka-get-offsets, -delete-records, -transactions' offsets_and_deleted_records
    check 'cluster: kafka-consumer-groups, console consumer in a group' consumer_groups
    check 'cluster: kafka-consumer-groups, committed offsets' offsets_of_groups
    check 'cluster: kafka-consumer-perf-test' consumer_perf
    check 'cluster: kafka-transactions, console consumer with read_committed' transactions_tool
    check 'cluster: kafka-verifiable-producer and -consumer' verifiable
    check 'cluster: kafka-cluster, -log-dirs' cluster_tools
    our_tools_anywhere 'three Headraces'
    program 'cluster: java' 300 java -Xmx512m -XX:+UseSerialGC -cp "$jars/*:$classes" interop.Main check "$address"
    check 'cluster: the Python clients of tests/interop' python_clients
    for id in "${member_ids[@]}"; do check "cluster: broker $id stops cleanly" stop_broker "member-$id"; done
    stop_broker zk-cluster
}
