# Apache Kafka's command line tools, against the Headrace at $address; and ours beside them (our_tools.sh).

. interop/our_tools.sh
. interop/our_admin_tools.sh

at() { echo "--bootstrap-server $address"; } # unquoted where it is used: two words

topics() {
    tool TopicCommand $(at) --create --topic made --partitions 2 --config retention.ms=100000
    fails tool TopicCommand $(at) --create --topic made
    fails tool TopicCommand $(at) --create --topic 'not/a/name'
    expect '^made$' tool TopicCommand $(at) --list
    expect 'PartitionCount: 2.*ReplicationFactor: [13].*retention.ms=100000' tool TopicCommand $(at) --describe --topic made
    tool TopicCommand $(at) --alter --topic made --partitions 4
    fails tool TopicCommand $(at) --alter --topic made --partitions 3
    expect 'PartitionCount: 4' tool TopicCommand $(at) --describe --topic made
    tool TopicCommand $(at) --delete --topic made
    lacks '^made$' tool TopicCommand $(at) --list
}

config() { java_small kafka.admin.ConfigCommand $(at) "$@"; }

configs() {
    tool TopicCommand $(at) --create --topic configured
    config --alter --topic configured --add-config 'segment.bytes=2000000,cleanup.policy=[compact,delete]'
    expect 'cleanup.policy=compact,delete .*DYNAMIC_TOPIC_CONFIG' config --describe --topic configured
    config --alter --topic configured --delete-config cleanup.policy
    lacks 'cleanup.policy' config --describe --topic configured
    fails config --alter --topic configured --add-config nonsense=1
    expect 'segment.bytes=2000000' config --describe --topic configured --all
    config --alter --broker 0 --add-config log.cleaner.threads=2
    expect 'log.cleaner.threads=2 .*DYNAMIC_BROKER_CONFIG' config --describe --broker 0
    config --alter --broker-defaults --add-config log.retention.ms=99999999
    expect 'log.retention.ms=99999999 .*DYNAMIC_DEFAULT_BROKER_CONFIG' config --describe --broker-defaults
    config --alter --broker-defaults --delete-config log.retention.ms
}

loggers() {
    local of_zero='--entity-type broker-loggers --entity-name 0' # unquoted where it is used
    expect '^  root=[A-Z]+ sensitive=false synonyms=\{\}' config --describe $of_zero
    expect '^Completed updating config for broker-logger 0\.' \
        config --alter $of_zero --add-config 'headrace.log=DEBUG,kafka.request.logger=FATAL'
    expect '^  headrace.log=DEBUG ' config --describe $of_zero
    expect '^  kafka.request.logger=FATAL ' config --describe $of_zero
    config --alter $of_zero --delete-config headrace.log --add-config kafka.request.logger=WARN
    lacks '^  headrace.log=DEBUG ' config --describe $of_zero
    fails config --alter $of_zero --add-config no.such.logger=INFO
    fails config --alter $of_zero --add-config headrace.log=LOUD
    fails config --alter $of_zero --delete-config root
}

quotas() {
    config --alter --user alice --add-config 'producer_byte_rate=1048576,request_percentage=200.5'
    config --alter --entity-type users --entity-name alice --entity-type clients --entity-default \
        --add-config consumer_byte_rate=2097152
    config --alter --user alice --add-config 'SCRAM-SHA-256=[password=secret]'
    config --alter --ip-defaults --add-config connection_creation_rate=100000
    expect "^Quota configs for user-principal 'alice' are .*producer_byte_rate=1048576.0" config --describe --entity-type users
    expect "^SCRAM credential configs for user-principal 'alice' are SCRAM-SHA-256=iterations=4096" \
        config --describe --entity-type users
    expect "^Quota configs for user-principal 'alice', the default client-id are consumer_byte_rate=2097152.0" \
        config --describe --entity-type users --entity-type clients
    expect '^Quota configs for the default ip are connection_creation_rate=100000.0' config --describe --entity-type ips
    fails config --alter --user alice --add-config producer_byte_rate=-1
    fails config --alter --user alice --delete-config consumer_byte_rate
    config --alter --user alice --delete-config producer_byte_rate,request_percentage
    config --alter --user alice --client-defaults --delete-config consumer_byte_rate
    config --alter --ip-defaults --delete-config connection_creation_rate
    lacks 'Quota configs' config --describe --entity-type users
    expect 'SCRAM-SHA-256=iterations=4096' config --describe --user alice
    config --alter --user alice --delete-config SCRAM-SHA-256
}

lines() { seq 50 | sed 's/.*/key&=value&/'; }

client_metrics() {
    tool ClientMetricsCommand $(at) --alter --name made --metrics org.apache.kafka.producer. --interval 5000 \
        --match 'client_id=a.*,client_software_name=apache-kafka-java'
    expect '^made$' tool ClientMetricsCommand $(at) --list
    expect 'match=client_id=a.\*,client_software_name=apache-kafka-java' tool ClientMetricsCommand $(at) --describe --name made
    expect 'interval.ms=5000 ' config --describe --client-metrics made
    fails tool ClientMetricsCommand $(at) --alter --name made --interval 5
    tool ClientMetricsCommand $(at) --delete --name made
    lacks '^made$' tool ClientMetricsCommand $(at) --list
}

# Kafka's own producer pushes its metrics as it is, and they are served.
java_pushes_metrics() {
    local metrics_port
    metrics_port=$(free_port)
    start_headrace telemetry "$work/telemetry" --metrics "127.0.0.1:$metrics_port"
    headrace client-metrics $(at) --alter --name all --metrics '*' --interval 100
    tool ProducerPerformance $(at) --topic pushed --num-records 2000 --record-size 100 --throughput 400
    bounded curl -sf "http://127.0.0.1:$metrics_port/metrics" >"$work/pushed.out"
    grep -qE '^org_apache_kafka_producer_[a-z_]+\{.*client_software_name="apache-kafka-java"' "$work/pushed.out"
    stop_broker telemetry
}

# A cluster with ZooKeeper has features at fixed levels, and no quorum.
features_and_quorum() {
    expect 'group.version.*FinalizedVersionLevel: 1' tool FeatureCommand $(at) describe
    tool FeatureCommand $(at) upgrade --feature group.version=1
    fails tool FeatureCommand $(at) upgrade --feature metadata.version=20 >"$work/features.out" 2>&1
    grep -q 'is not a feature of this cluster' "$work/features.out"
    fails tool MetadataQuorumCommand $(at) describe --status >"$work/quorum.out" 2>&1
    grep -q 'does not support DESCRIBE_QUORUM' "$work/quorum.out"
}

console() {
    tool TopicCommand $(at) --create --topic console --partitions 2
    lines | tool ConsoleProducer $(at) --topic console --reader-property parse.key=true \
        --reader-property key.separator==
    local partition
    for partition in 0 1; do
        tool consumer.ConsoleConsumer $(at) --topic console --partition "$partition" --offset earliest \
            --timeout-ms 3000 --formatter-property print.key=true --formatter-property key.separator==
    done >"$work/console.out"
    same records "$(sort "$work/console.out")" "$(lines | sort)"
    # From an offset, two records, and only committed ones.
    tool consumer.ConsoleConsumer $(at) --topic console --partition 0 --offset 3 --max-messages 2 \
        --isolation-level read_committed --formatter-property print.offset=true >"$work/console.out"
    same offsets "$(grep -oE 'Offset:[0-9]+' "$work/console.out" | paste -sd' ')" 'Offset:3 Offset:4'
}

producer_perf() {
    tool TopicCommand $(at) --create --topic perf --partitions 2
    local codec
    for codec in none zstd; do
        expect '^20000 records sent' tool ProducerPerformance $(at) --topic perf --num-records 20000 --record-size 100 \
            --throughput -1 --command-property acks=all --command-property compression.type=$codec
    done
    expect '^2000 records sent' tool ProducerPerformance $(at) --topic perf --num-records 2000 --record-size 100 \
        --throughput -1 --command-property acks=1 --command-property batch.size=1
    same records "$(tool GetOffsetShell $(at) --topic perf | awk -F: '{ sum += $3 } END { print sum }')" 42000
}

offsets_and_deleted_records() {
    tool TopicCommand $(at) --create --topic counted
    seq 10 | tool ConsoleProducer $(at) --topic counted
    expect '^counted:0:10$' tool GetOffsetShell $(at) --topic counted --time latest
    expect '^counted:0:0$' tool GetOffsetShell $(at) --topic counted --time earliest
    expect '^counted:0:[0-9]$' tool GetOffsetShell $(at) --topic counted --time max-timestamp
    expect '^counted:0:0$' tool GetOffsetShell $(at) --topic counted --time 1000
    echo '{"version": 1, "partitions": [{"topic": "counted", "partition": 0, "offset": 4}]}' >"$work/delete.json"
    expect 'counted-0.*low_watermark: 4' tool DeleteRecordsCommand $(at) --offset-json-file "$work/delete.json"
    expect '^counted:0:4$' tool GetOffsetShell $(at) --topic counted --time earliest
    tool TransactionsCommand $(at) describe-producers --topic counted --partition 0 >"$work/producers.out"
    same 'lines of one producer' "$(grep -c . "$work/producers.out")" 2
}

offsets_of_groups() {
    local groups="consumer.group.ConsumerGroupCommand $(at)" # unquoted where it is used
    tool TopicCommand $(at) --create --topic committed
    seq 10 | tool ConsoleProducer $(at) --topic committed
    tool $groups --group watched --topic committed --reset-offsets --to-offset 3 --execute
    expect '^watched +committed +0 +3 +10 +7 ' tool $groups --describe --group watched --offsets
    tool consumer.ConsoleConsumer $(at) --topic __consumer_offsets --from-beginning --timeout-ms 5000 \
        --formatter org.apache.kafka.tools.consumer.OffsetsMessageFormatter >"$work/committed.out"
    expect '"group":"watched","topic":"committed","partition":0.*"offset":3' cat "$work/committed.out"
    tool $groups --group watched --topic committed --delete-offsets
    lacks 'committed' tool $groups --describe --group watched --offsets
}

cluster() {
    expect 'Produce\(0\): [0-9]+ to [0-9]+ \[usable' tool BrokerApiVersionsCommand $(at)
    expect '^Cluster ID: .' tool ClusterTool cluster-id $(at)
    expect "unfenced +broker" tool ClusterTool list-endpoints $(at)
    expect '"error":null,"logDir":"/' tool LogDirsCommand $(at) --describe
}

apache_tools() {
    check 'tools: kafka-topics' topics
    check 'tools: kafka-configs' configs
    check 'tools: kafka-client-metrics' client_metrics
    check 'tools: metrics that a Java producer pushes' java_pushes_metrics
    check 'tools: kafka-features and -metadata-quorum' features_and_quorum
    check 'tools: kafka-configs, log levels' loggers
    check 'tools: kafka-configs, quotas' quotas
    check 'tools: kafka-console-producer and -consumer' console
    check 'tools: kafka-producer-perf-test' producer_perf
    check 'tools: kafka-get-offsets, -delete-records, -transactions' offsets_and_deleted_records
    check 'tools: kafka-consumer-groups, committed offsets' offsets_of_groups
    check 'tools: kafka-broker-api-versions, -cluster, -log-dirs' cluster
    our_tools
    our_admin_tools Headrace
}
