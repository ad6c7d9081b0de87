import pytest
from broker_harness import all_versions

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode

NOT_ASKED = -(2**31)


def ask(client, version=1, *, operations=False, endpoint_type=1):
    fields = {"include_cluster_authorized_operations": operations, "endpoint_type": endpoint_type}
    return client.ask(Api.DESCRIBE_CLUSTER, version, **fields, include_fenced_brokers=False)


@pytest.mark.parametrize("version", all_versions(Api.DESCRIBE_CLUSTER))
def test_every_version(client, version):
    answer = ask(client, version)
    assert (answer.error_code, answer.controller_id) == (0, 0)
    assert answer.cluster_id == client.metadata([], 3).cluster_id
    (broker,) = answer.brokers
    assert (broker.broker_id, broker.host, broker.port) == (0, *client.socket.getpeername())
    assert answer.cluster_authorized_operations == NOT_ASKED
    if version >= 2:
        assert broker.is_fenced is False


def test_authorized_operations(client):
    assert ask(client, operations=True).cluster_authorized_operations == 0b1_1111_1010_0000


def test_there_are_no_controllers_here(client):
    assert ask(client, endpoint_type=2).error_code == ErrorCode.mismatched_endpoint_type


def test_an_unknown_kind_of_endpoint(client):
    assert ask(client, endpoint_type=3).error_code == ErrorCode.unsupported_endpoint_type
