"""Three brokers answer clients as one does; each test is something that one did and three did not.

Suites of clients run on three brokers by ``HEADRACE_TEST_BROKERS=3`` (tests/interop) and ``script/interop cluster``.
"""

import pytest

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.testing.cluster_process import ClusterProcess
from headrace.testing.raw_client import RawClient

pytestmark = pytest.mark.xdist_group("cluster")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with ClusterProcess(tmp_path_factory.mktemp("cluster")) as made:
        yield made


def test_topics_that_are_not_there_cannot_be_deleted(cluster):
    for address in cluster.addresses.values():
        with RawClient(address) as client:
            topics = [{"name": "nowhere", "topic_id": None}]
            (answer,) = client.ask(Api.DELETE_TOPICS, 6, topics=topics, timeout=5_000).responses
            assert answer.error_code == ErrorCode.unknown_topic_or_partition
            assert client.ask(Api.DELETE_TOPICS, 6, topics=(), timeout=5_000).responses == ()
