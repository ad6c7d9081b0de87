# Our own clients on Apache Kafka; part of script/interop.

client_checks() {
    mkdir -p "$work/clients"
    start_apache one "$work/clients/one" group.initial.rebalance.delay.ms=0
    check 'clients: their tests pass on Apache Kafka' client_tests
    our_admin_tools 'Apache Kafka'
    check 'clients: Apache Kafka stops cleanly' stop_broker one
    program clients 400 .venv/bin/python interop/clients/failover.py "$jars" "$work/clients"
    secured_client_checks
}

secured_client_checks() {
    local secured=$work/clients/secured
    mkdir -p "$secured"
    start_secured_apache
    check 'clients: users and rules on a secured Apache Kafka' eval 'scram_users && acl_rules'
    program 'clients, secured' 300 .venv/bin/python interop/clients/secured.py "$secured"
    check 'clients: the secured Apache Kafka stops cleanly' stop_broker secured
}

client_tests() {
    HEADRACE_TEST_KAFKA=$address timeout --kill-after=5 400 \
        .venv/bin/pytest -p no:cacheprovider tests/client/admin tests/client/consumer
}
