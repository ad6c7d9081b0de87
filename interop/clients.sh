# Our own clients on Apache Kafka; part of script/interop.

client_checks() {
    mkdir -p "$work/clients"
    start_apache one "$work/clients/one" group.initial.rebalance.delay.ms=0
    check 'clients: their tests pass on Apache Kafka' client_tests
    our_admin_tools 'Apache Kafka'
    check 'clients: Apache Kafka stops cleanly' stop_broker one
    program clients 400 .venv/bin/python interop/clients/failover.py "$jars" "$work/clients"
}

client_tests() {
    HEADRACE_TEST_KAFKA=$address timeout --kill-after=5 400 \
        .venv/bin/pytest -p no:cacheprovider tests/client/admin tests/client/consumer
}
