"""Client quotas in a cluster of three: in force on all brokers without a restart, after deaths and restarts."""

from datetime import timedelta

from cluster_scenario_harness import until

from headrace import Admin
from headrace.client.admin.quotas import QuotaEntity
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


def _is_altered(admin):
    try:
        alter(admin, None)
    except HeadraceError:  # the brokers have no session yet
        return False
    return True


def _controller_of(admin):
    controller = admin.describe_cluster().controller
    return None if controller is None else controller.id
