"""``kill -9`` while large batches are written: acknowledged ones survive, and no part of another one is left."""

from struct import pack

import pytest

from headrace.protocol.api import Api
from headrace.protocol.batch_building import build_batch
from headrace.protocol.record_body import Record
from headrace.protocol.records import iter_headers
from headrace.testing.broker_process import BrokerProcess
from headrace.testing.raw_client import RawClient

VALUE_BYTES = 5_000_000
SETTINGS = ("-o", "message.max.bytes=50000000", "-o", "log.segment.bytes=12000000", "-o", "num.partitions=1")


def produce_fields(number):
    records = build_batch([Record(0, 1_700_000_000_000, None, pack(">q", number) + b"x" * VALUE_BYTES, ())])
    topic_data = [{"name": "t", "partition_data": [{"index": 0, "records": records}]}]
    return {"transactional_id": None, "acks": -1, "timeout": 30_000, "topic_data": topic_data}


def stored_offsets(folder):
    """The offsets of the batches in all segments, and how many bytes they have."""
    found = []
    for path in sorted((folder / "t-0").glob("*.log")):
        content = path.read_bytes()
        batches = [header for _, header in iter_headers(content)]
        assert sum(header.size_bytes for header in batches) == len(content), path
        found += [header.base_offset for header in batches]
    return found


@pytest.mark.parametrize("is_under_way", [False, True], ids=["after the answer", "before the answer"])
def test_acknowledged_large_batches_survive(tmp_path, is_under_way):
    acknowledged = 0
    for _ in range(3):
        with BrokerProcess(tmp_path, *SETTINGS) as process, RawClient(process.address) as client:
            client.ask(Api.METADATA, 4, topics=[{"name": "t"}], allow_auto_topic_creation=True)
            found = stored_offsets(tmp_path)
            assert found == list(range(len(found)))
            assert len(found) >= acknowledged
            acknowledged = len(found)
            for _ in range(2):
                answer = client.ask(Api.PRODUCE, 9, **produce_fields(acknowledged))
                (data,) = answer.responses[0].partition_responses
                assert (data.error_code, data.base_offset) == (0, acknowledged)
                acknowledged += 1
            if is_under_way:
                client.send(Api.PRODUCE, 9, **produce_fields(acknowledged))
            process.kill()
    with BrokerProcess(tmp_path, *SETTINGS):
        found = stored_offsets(tmp_path)
    assert found == list(range(len(found)))
    assert acknowledged <= len(found) <= acknowledged + 1
