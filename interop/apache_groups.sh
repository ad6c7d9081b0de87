# Apache Kafka's command line tools for groups and transactions, against the Headrace at $address.

groups() { tool consumer.group.ConsumerGroupCommand $(at) "$@"; }

console_consumer() { tool consumer.ConsoleConsumer $(at) "$@"; }

consumer_groups() {
    tool TopicCommand $(at) --create --topic grouped --partitions 2
    seq 40 | tool ConsoleProducer $(at) --topic grouped --command-property batch.size=1
    # A member that stays while the tool looks, and then is told to go.
    timeout --kill-after=5 60 java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$jars/*" \
        org.apache.kafka.tools.consumer.ConsoleConsumer $(at) --topic grouped --group lookers --from-beginning \
        --command-property client.id=looker >"$work/grouped.out" 2>/dev/null &
    local member=$! tries
    for ((tries = 0; tries < 200; tries++)); do
        if [ "$(grep -c . "$work/grouped.out")" = 40 ]; then break; fi
        sleep 0.2
    done
    expect '^lookers$' groups --list
    expect '^lookers +Classic +' groups --list --type classic
    expect '^lookers +Stable' groups --list --state Stable
    expect '^lookers +looker-.* +2 ' groups --describe --group lookers --members
    expect '^lookers +looker-.*grouped' groups --describe --group lookers --members --verbose
    expect '^lookers +.*range +Stable +1' groups --describe --group lookers --state
    expect 'GroupNotEmptyException' groups --delete --group lookers
    kill "$member"
    wait "$member" || true
    same 'records' "$(sort -n "$work/grouped.out" | grep -E '^[0-9]+$' | paste -sd' ')" "$(seq 40 | paste -sd' ')"
    expect '^lookers +Empty' groups --list --state
    expect '^lookers +grouped +[01] +[0-9]+ +[0-9]+ +0 +- ' groups --describe --group lookers
    groups --reset-offsets --group lookers --topic grouped --to-earliest --execute
    expect '^lookers +grouped +0 +0 +' groups --describe --group lookers --offsets
    same 'read again' "$(console_consumer --topic grouped --group lookers --timeout-ms 3000 | grep -c .)" 40
    groups --delete-offsets --group lookers --topic grouped
    groups --reset-offsets --group lookers --topic grouped:0 --to-offset 1 --execute
    groups --delete --group lookers
    lacks '^lookers$' groups --list
    expect 'GroupIdNotFoundException' groups --describe --group never-seen
}

consumer_perf() {
    tool TopicCommand $(at) --create --topic perf-read --partitions 2
    tool ProducerPerformance $(at) --topic perf-read --num-records 20000 --record-size 100 --throughput -1
    local protocol
    for protocol in classic consumer; do
        tool ConsumerPerformance $(at) --topic perf-read --num-records 20000 --group "perf-$protocol" --hide-header \
            --command-property group.protocol=$protocol >"$work/perf.out"
        expect ', 20000, ' cat "$work/perf.out"
    done
}

transactions_tool() {
    java_small interop.Main leave-open "$address" transacted >"$work/open.out"
    expect '^transacted\s+[012]\s+[0-9]+\s+Ongoing' tool TransactionsCommand $(at) list
    expect 'Ongoing.*transacted-0' tool TransactionsCommand $(at) describe --transactional-id transacted
    tool TransactionsCommand $(at) describe-producers --topic transacted --partition 0 >"$work/producers.out"
    expect '^[0-9]+\s+[0-9]+\s+' cat "$work/producers.out"
    tool TransactionsCommand $(at) find-hanging --broker-id 0
    # What is committed is read, and the open one is not.
    console_consumer --topic transacted --from-beginning --isolation-level read_committed --timeout-ms 3000 >"$work/read.out"
    same 'committed' "$(sort -u "$work/read.out" | paste -sd' ')" committed
    console_consumer --topic transacted --from-beginning --timeout-ms 3000 >"$work/read.out"
    same 'all' "$(sort -u "$work/read.out" | paste -sd' ')" 'aborted committed open'
    tool TransactionsCommand $(at) abort --topic transacted --partition 0 --start-offset "$(cat "$work/open.out")"
    fails tool TransactionsCommand $(at) describe --transactional-id never-seen
}

apache_groups() {
    check 'tools: kafka-consumer-groups, console consumer in a group' consumer_groups
    check 'tools: kafka-consumer-perf-test' consumer_perf
    check 'tools: kafka-transactions, console consumer with read_committed' transactions_tool
}
