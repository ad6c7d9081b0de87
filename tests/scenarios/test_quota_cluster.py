"""Client quotas in a cluster of three: in force on all brokers without a restart, after deaths and restarts."""

from datetime import timedelta
from time import monotonic

from cluster_scenario_harness import until

from headrace import Admin, Consumer, Producer, TopicPartition
from headrace.client.admin.quotas import DEFAULT, QuotaEntity
from headrace.client.errors import HeadraceError
from headrace.protocol.api import Api
from headrace.testing.cluster_process import ClusterProcess
from headrace.testing.raw_client import RawClient

#: The client id of RawClient.
CLIENT = QuotaEntity(user="ANONYMOUS", client_id="raw-client")
KEY = "request_percentage"
#: So little that the second request of a connection is throttled.
LITTLE = 0.001
_PATIENCE_S = 30.0


def is_throttled(address):
    """Sends a few requests to one broker. Returns whether an answer has a throttle time."""
    with RawClient(address, timeout_s=_PATIENCE_S) as client:
        answers = [client.ask(Api.METADATA, 12, topics=[], include_topic_authorized_operations=False) for _ in range(3)]
    return any(answer.throttle_time > timedelta(0) for answer in answers)


def wait_until_all(addresses, *, are_throttled):
    until(
        lambda: all(is_throttled(address) is are_throttled for address in addresses),
        f"all brokers {'enforce the quota' if are_throttled else 'know that the quota is gone'}",
        timeout_s=_PATIENCE_S,
    )


def alter(admin, limit):
    admin.alter_client_quotas({CLIENT: {KEY: limit}}).all()


def test_quotas_are_in_force_on_all_brokers_after_deaths_and_restarts(tmp_path):
    with ClusterProcess(tmp_path, session_timeout_ms=3_000) as cluster:
        addresses = list(cluster.addresses.values())
        wait_until_all(addresses, are_throttled=False)
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            alter(admin, LITTLE)
            wait_until_all(addresses, are_throttled=True)

            controller = _controller_of(admin)
            cluster.kill(controller)
            others = [address for number, address in cluster.addresses.items() if number != controller]
            wait_until_all(others, are_throttled=True)
            until(
                lambda: _controller_of(admin) not in (controller, None),
                "there is another controller",
                timeout_s=_PATIENCE_S,
            )
            assert admin.describe_client_quotas() == {CLIENT: {KEY: LITTLE}}
            cluster.restart(controller)
            wait_until_all(addresses, are_throttled=True)

            cluster.zookeeper.kill()
            assert all(is_throttled(address) for address in addresses)
            cluster.restart_zookeeper()
            until(lambda: _is_altered(admin), "the quota can be removed again", timeout_s=_PATIENCE_S)
            wait_until_all(addresses, are_throttled=False)


def test_followers_are_exempt(tmp_path):
    """Followers have the same user as the clients here. With the limit they would need minutes for these records."""
    everybody = QuotaEntity(user=DEFAULT)
    with (
        ClusterProcess(tmp_path) as cluster,
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
        Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all", delivery_timeout_ms=60_000) as producer,
    ):
        admin.create_topic("copied", 1, 3, configs={"min.insync.replicas": "3"})
        admin.alter_client_quotas({everybody: {"consumer_byte_rate": 1_000}}).all()
        for address in cluster.addresses.values():
            until(lambda at=address: _has_quotas(at), "all brokers know the quotas", timeout_s=_PATIENCE_S)
        for _ in range(20):
            producer.send("copied", b"v" * 20_000).result(60)
        with Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("copied", 0)])
            started = monotonic()
            found = 0
            while monotonic() - started < 5:
                found += len(consumer.poll(500))
            assert 0 < found < 20, "the consumer is limited to ten seconds' worth"


def _has_quotas(address):
    with RawClient(address, timeout_s=_PATIENCE_S) as client:
        return bool(client.ask(Api.DESCRIBE_CLIENT_QUOTAS, 1, components=[], strict=False).entries)


def _is_altered(admin):
    try:
        alter(admin, None)
    except HeadraceError:  # the brokers have no session yet
        return False
    return True


def _controller_of(admin):
    controller = admin.describe_cluster().controller
    return None if controller is None else controller.id
