# Our tools for administration beside Apache's, on the broker at $address, be it a Headrace or an Apache Kafka: the same
# flags must give the same lines on standard output. Their order is nobody's: Apache's is that of hash tables.

at_broker() { echo "--bootstrap-server $address"; } # unquoted where it is used: two words

alike() { # CLASS COMMAND ARGUMENT...: Apache's tool and ours say the same, and both succeed
    local theirs=$1 ours=$2
    shift 2
    java_small "$theirs" $(at_broker) "$@" >"$work/theirs.out"
    headrace "$ours" $(at_broker) "$@" >"$work/ours.out"
    diff <(sort "$work/theirs.out") <(sort "$work/ours.out")
}

topics_alike() { alike org.apache.kafka.tools.TopicCommand topics "$@"; }
configs_alike() { alike kafka.admin.ConfigCommand configs "$@"; }
groups_alike() { # a group of an earlier check may lose its last member between the two tools: up to three tries
    local tries
    for tries in 1 2; do
        if alike org.apache.kafka.tools.consumer.group.ConsumerGroupCommand consumer-groups "$@"; then return; fi
    done
    alike org.apache.kafka.tools.consumer.group.ConsumerGroupCommand consumer-groups "$@"
}
offsets_alike() { alike org.apache.kafka.tools.GetOffsetShell get-offsets "$@"; }
transactions_alike() { alike org.apache.kafka.tools.TransactionsCommand transactions "$@"; }
moves_alike() { alike org.apache.kafka.tools.reassign.ReassignPartitionsCommand reassign-partitions "$@"; }

our_topics() {
    expect '^Created topic admin-a.$' headrace topics $(at_broker) --create --topic admin-a --partitions 3 \
        --config retention.ms=100000000
    fails headrace topics $(at_broker) --create --topic admin-a
    topics_alike --create --topic admin-a --if-not-exists
    topics_alike --list
    topics_alike --describe --topic admin-a
    topics_alike --describe --topic 'admin-.*' --at-min-isr-partitions
    topics_alike --describe --topic admin-a --topics-with-overrides
    topics_alike --describe --topic nowhere --if-exists
    headrace topics $(at_broker) --alter --topic admin-a --partitions 4
    topics_alike --describe --topic admin-a
    headrace topics $(at_broker) --create --topic admin-gone
    headrace topics $(at_broker) --delete --topic admin-gone
    lacks '^admin-gone$' tool TopicCommand $(at_broker) --list
}

our_configs() {
    configs_alike --alter --topic admin-a --add-config 'segment.bytes=2000000,cleanup.policy=[compact,delete]'
    configs_alike --describe --entity-type topics --entity-name admin-a
    configs_alike --describe --topic admin-a --all
    configs_alike --alter --entity-type topics --entity-name admin-a --delete-config cleanup.policy
    configs_alike --alter --entity-type brokers --entity-default --add-config log.retention.ms=99999999
    configs_alike --describe --entity-type brokers
    configs_alike --describe --broker "$(broker_id)" --all
    configs_alike --alter --broker-defaults --delete-config log.retention.ms
    fails headrace configs $(at_broker) --alter --topic admin-a --add-config nonsense=1
    configs_alike --alter --broker-logger "$(broker_id)" --add-config root=WARN
    configs_alike --describe --entity-type broker-loggers --entity-name "$(broker_id)"
    configs_alike --alter --broker-logger "$(broker_id)" --add-config root=INFO
}

# Apache's tool prints the quotas of an entity in the order of a hash table, so each entity has one.
our_quotas() {
    configs_alike --alter --entity-type users --entity-name 'quo ta' --add-config producer_byte_rate=10485760
    configs_alike --alter --user 'quo ta' --client quota-app --add-config consumer_byte_rate=123456
    configs_alike --alter --entity-type clients --entity-type users --entity-default --entity-name 'quo ta' \
        --add-config request_percentage=12.5
    configs_alike --alter --user-defaults --client-defaults --add-config controller_mutation_rate=1000000
    configs_alike --alter --ip 127.0.0.9 --add-config connection_creation_rate=1000
    configs_alike --alter --entity-type ips --entity-default --add-config connection_creation_rate=100000
    configs_alike --alter --client quota-app --add-config producer_byte_rate=999999999
    configs_alike --describe --entity-type users
    configs_alike --describe --user 'quo ta'
    configs_alike --describe --entity-type users --entity-name 'quo ta' --entity-type clients
    configs_alike --describe --entity-type users --entity-type clients
    configs_alike --describe --entity-type users --entity-type clients --entity-default --entity-default
    configs_alike --describe --entity-type clients
    configs_alike --describe --client quota-app
    configs_alike --describe --entity-type ips
    configs_alike --describe --ip-defaults
    fails headrace configs $(at_broker) --alter --user 'quo ta' --delete-config consumer_byte_rate
    fails headrace configs $(at_broker) --alter --user 'quo ta' --add-config producer_byte_rate=-1
    fails headrace configs $(at_broker) --alter --ip no.such.host.invalid --add-config connection_creation_rate=1
    headrace configs $(at_broker) --alter --user 'quo ta' --delete-config producer_byte_rate
    headrace configs $(at_broker) --alter --user 'quo ta' --client quota-app --delete-config consumer_byte_rate
    headrace configs $(at_broker) --alter --user 'quo ta' --client-defaults --delete-config request_percentage
    headrace configs $(at_broker) --alter --user-defaults --client-defaults --delete-config controller_mutation_rate
    headrace configs $(at_broker) --alter --ip 127.0.0.9 --delete-config connection_creation_rate
    headrace configs $(at_broker) --alter --ip-defaults --delete-config connection_creation_rate
    headrace configs $(at_broker) --alter --client quota-app --delete-config producer_byte_rate
    configs_alike --describe --entity-type users
}

broker_id() { headrace broker-api-versions $(at_broker) | sed -nE 's/.* \(id: ([0-9]+) .*/\1/p' | head -n 1; }

our_offsets() {
    seq 40 | headrace console-producer $(at_broker) --topic admin-a --batch-size 1
    offsets_alike --topic admin-a
    offsets_alike --topic-partitions 'admin-a:1-3' --time earliest
    offsets_alike --topic admin-a --time max-timestamp --partitions 0,2
    offsets_alike --topic admin-a --time 1000
    echo '{"version": 1, "partitions": [{"topic": "admin-a", "partition": 0, "offset": 1}]}' >"$work/delete.json"
    alike org.apache.kafka.tools.DeleteRecordsCommand delete-records --offset-json-file "$work/delete.json"
    alike org.apache.kafka.tools.LogDirsCommand log-dirs --describe --topic-list admin-gone
    expect '"partition":"admin-a-3"' headrace log-dirs $(at_broker) --describe
}

our_groups() {
    local scope
    headrace consumer-groups $(at_broker) --reset-offsets --group admin-idle --topic admin-a:0,1 --to-offset 2 --execute
    headrace console-consumer $(at_broker) --topic admin-a --group admin-busy --from-beginning >"$work/busy.out" 2>&1 &
    local consumer=$! tries
    for tries in $(seq 50); do
        if headrace consumer-groups $(at_broker) --list --state stable | grep -q admin-busy; then break; fi
    done
    groups_alike --list --state --type
    groups_alike --describe --group admin-idle
    groups_alike --describe --group admin-busy --members --verbose
    groups_alike --describe --all-groups --state --verbose
    fails headrace consumer-groups $(at_broker) --reset-offsets --group admin-busy --topic admin-a --to-latest --execute
    kill "$consumer"
    wait "$consumer" || true
    # Not a time past the last record: Apache's warns of that on standard output.
    for scope in --to-earliest --to-latest --to-current '--to-offset 1' '--to-datetime 2020-01-01T00:00:00.000' \
        '--by-duration P1D'; do
        groups_alike --reset-offsets --group admin-idle --topic admin-a $scope --dry-run
    done
    groups_alike --reset-offsets --group admin-idle --all-topics --shift-by -1 --dry-run
    headrace consumer-groups $(at_broker) --reset-offsets --group admin-idle --all-topics --to-current --export --dry-run \
        >"$work/offsets.csv"
    groups_alike --reset-offsets --group admin-idle --from-file "$work/offsets.csv" --execute
    headrace consumer-groups $(at_broker) --delete-offsets --group admin-idle --topic admin-a:0
    groups_alike --describe --group admin-idle
    headrace consumer-groups $(at_broker) --delete --group admin-idle
    fails headrace consumer-groups $(at_broker) --describe --group admin-idle
}

our_transactions() {
    transactions_alike list
    transactions_alike describe-producers --topic admin-a --partition 0
    transactions_alike find-hanging --broker-id "$(broker_id)"
}

our_moves() {
    local broker
    broker=$(broker_id)
    echo '{"version": 1, "topics": [{"topic": "admin-a"}]}' >"$work/topics.json"
    echo "{\"version\": 1, \"partitions\": [{\"topic\": \"admin-a\", \"partition\": 0, \"replicas\": [$broker]}]}" \
        >"$work/plan.json"
    moves_alike --generate --topics-to-move-json-file "$work/topics.json" --broker-list "$broker"
    moves_alike --execute --reassignment-json-file "$work/plan.json" --throttle 100000
    moves_alike --verify --reassignment-json-file "$work/plan.json"
    moves_alike --list
    alike org.apache.kafka.tools.LeaderElectionCommand leader-election --election-type preferred --topic admin-a --partition 0
    alike org.apache.kafka.tools.LeaderElectionCommand leader-election --election-type preferred --all-topic-partitions
}

our_admin_tools() { # WHERE
    our_tools_anywhere "$1"
    check "our tools on $1: reassign-partitions, leader-election" our_moves
}

our_tools_anywhere() { # WHERE; on several brokers a partition that one tool has moved is elsewhere for the next
    check "our tools on $1: topics says what Apache's says" our_topics
    check "our tools on $1: configs" our_configs
    check "our tools on $1: configs, quotas of users, clients and ips" our_quotas
    check "our tools on $1: get-offsets, delete-records, log-dirs" our_offsets
    check "our tools on $1: consumer-groups" our_groups
    check "our tools on $1: transactions" our_transactions
}
