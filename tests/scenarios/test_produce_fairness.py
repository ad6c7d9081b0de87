"""A client with huge Produce requests does not delay the acknowledgements of other clients.

The unit is processor time of the event loop per iteration (``loop_watch.py``): that is how long another client waits on
an idle machine, and a busy machine changes it little.
"""

import pytest
from loop_watch import LoopWatch, collect_garbage_as_a_broker

from headrace import Broker
from headrace.protocol.api import Api
from headrace.protocol.batch_building import build_batch
from headrace.protocol.record_body import Record
from headrace.testing.broker_process import BrokerProcess
from headrace.testing.raw_client import RawClient

PARTITIONS = 10
VALUE_BYTES = 900_000
#: The size of each batch, and in how many partitions a request has one.
MANY_BATCHES, ONE_BATCH = (VALUE_BYTES, PARTITIONS), (20_000_000, 1)
REQUESTS = 10
#: 0.3 to 2 ms on an idle machine, up to 3.2 ms if other tests fill both cores. If the loop itself checks and writes the
#: batches, it needs 1.3 ms per MiB: 11 ms and more.
LONGEST_MS = 5
#: A copy of the records took 2,200 pages per request, and 5 ms of the loop to get them.
FEW_PAGES = 300
#: A page fault of the host may hit one try.
TRIES = 3


@pytest.fixture
def broker():
    config = {"num.partitions": PARTITIONS, "log.segment.bytes": 1 << 30, "message.max.bytes": 50_000_000}
    with Broker(config=config) as broker:
        collect_garbage_as_a_broker()
        yield broker


def produce_fields(topic, value, partitions):
    records = build_batch([Record(0, 1_700_000_000_000, None, value, ())])
    data = [{"index": index, "records": records} for index in range(partitions)]
    topic_data = [{"name": topic, "partition_data": data}]
    return {"transactional_id": None, "acks": -1, "timeout": 30_000, "topic_data": topic_data}


def is_acknowledged(client, fields):
    answer = client.ask(Api.PRODUCE, 9, **fields)
    return all(data.error_code == 0 for topic in answer.responses for data in topic.partition_responses)


@pytest.mark.parametrize(("value_bytes", "partitions"), [MANY_BATCHES, ONE_BATCH])
def test_a_huge_request_takes_the_loop_for_a_short_time_only(broker, value_bytes, partitions):
    huge = produce_fields("huge", b"x" * value_bytes, partitions)
    small = produce_fields("small", b"x" * 100, 1)
    longest_ms = []
    with RawClient(broker.bootstrap_servers) as greedy, RawClient(broker.bootstrap_servers) as ordinary:
        for client, topic in ((greedy, "huge"), (ordinary, "small")):
            client.ask(Api.METADATA, 4, topics=[{"name": topic}], allow_auto_topic_creation=True)
        assert is_acknowledged(greedy, huge)  # loads the handler, and the buffers get their memory
        for _ in range(TRIES):
            watch = LoopWatch(broker.core.runtime.loop)
            with watch.watching():
                for _ in range(REQUESTS):
                    assert is_acknowledged(greedy, huge)
                    assert is_acknowledged(ordinary, small)
            longest_ms.append(watch.longest_ms)
    assert min(longest_ms) < LONGEST_MS, longest_ms


def minor_faults(process):
    """How many pages of memory the process got from the system so far."""
    with open(f"/proc/{process.pid}/stat", encoding="ascii") as stat:
        return int(stat.read().rpartition(")")[2].split()[7])


def test_the_memory_of_a_request_of_9_mb_is_used_again(tmp_path):
    huge = produce_fields("huge", b"x" * VALUE_BYTES, PARTITIONS)
    with BrokerProcess(tmp_path, "-o", f"num.partitions={PARTITIONS}") as process, RawClient(process.address) as greedy:
        greedy.ask(Api.METADATA, 4, topics=[{"name": "huge"}], allow_auto_topic_creation=True)
        for _ in range(3):
            assert is_acknowledged(greedy, huge)
        before = minor_faults(process)
        for _ in range(REQUESTS):
            assert is_acknowledged(greedy, huge)
        assert minor_faults(process) - before < FEW_PAGES * REQUESTS
