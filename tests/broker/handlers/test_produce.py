"""Produce: what is appended, what is refused and with which code."""

import pytest
from broker_harness import NOW_MS, all_versions, batch, headers, unique, values

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.protocol.records import Codec
from headrace.testing.raw_client import ClosedByPeer

BY_ID = 13


@pytest.fixture
def now_ms():
    import time

    return time.time_ns() // 1_000_000


@pytest.mark.parametrize("version", all_versions(Api.PRODUCE))
def test_every_version_appends(client, topic, version):
    topic_id = client.id_of(topic) if version >= BY_ID else None
    first = client.produce(topic, batch(3), version=version, topic_id=topic_id)
    second = client.produce(topic, batch(2), version=version, topic_id=topic_id)
    assert (first.error_code, first.base_offset) == (0, 0)
    assert (second.error_code, second.base_offset) == (0, 3)
    assert second.log_append_time is None
    if version >= 5:
        assert second.log_start_offset == 0
    if version >= 8:
        assert second.record_errors == ()
        assert second.error_message is None
    assert len(values(client.read(topic).records)) == 5


@pytest.mark.parametrize("acks", [-1, 1])
def test_is_answered_when_acks_are_met(client, topic, acks):
    assert client.produce(topic, acks=acks).error_code == 0


def test_without_acks_there_is_no_answer(client, topic):
    data = {"name": topic, "partition_data": [{"index": 0, "records": batch(value=b"quiet")}]}
    client.send(Api.PRODUCE, 9, expects_answer=False, acks=0, timeout=1000, topic_data=[data])
    assert values(client.read(topic).records) == [b"quiet"]


def test_without_acks_an_error_closes_the_connection(client):
    data = {"name": unique(), "partition_data": [{"index": 0, "records": batch()}]}
    client.send(Api.PRODUCE, 9, expects_answer=False, acks=0, timeout=1000, topic_data=[data])
    assert client.is_closed_by_peer()


@pytest.mark.parametrize("acks", [-2, 2, 3])
def test_other_acks_are_refused(client, topic, acks):
    answer = client.produce(topic, acks=acks)
    assert answer.error_code == ErrorCode.invalid_required_acks
    assert answer.base_offset == -1
    assert client.offset(topic, -1).offset == 0


def test_unknown_topic_and_partition(client, topic):
    assert client.produce(unique()).error_code == ErrorCode.unknown_topic_or_partition
    assert client.produce(topic, partition=1).error_code == ErrorCode.unknown_topic_or_partition
    assert client.produce(topic, partition=-1).error_code == ErrorCode.unknown_topic_or_partition


def test_unknown_topic_id(client):
    from uuid import uuid4

    answer = client.produce(None, version=BY_ID, topic_id=uuid4())
    assert answer.error_code == ErrorCode.unknown_topic_id


def test_unknown_partition_by_id(client, topic):
    answer = client.produce(None, version=BY_ID, topic_id=client.id_of(topic), partition=9)
    assert answer.error_code == ErrorCode.unknown_topic_or_partition


def test_two_batches_for_a_partition(client, topic):
    assert client.produce(topic, batch() + batch()).error_code == ErrorCode.invalid_record


def test_no_batch(client, topic):
    assert client.produce(topic, b"").error_code == ErrorCode.invalid_record


def test_null_records(client, topic, ours):
    records = None
    data = {"name": topic, "partition_data": [{"index": 0, "records": records}]}
    client.send(Api.PRODUCE, 9, acks=1, timeout=1000, topic_data=[data])
    assert client.receive().responses[0].partition_responses[0].error_code == ErrorCode.invalid_record


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_another_magic(client, topic, magic, ours):
    wrong = bytearray(batch())
    wrong[16] = magic
    assert client.produce(topic, bytes(wrong)).error_code == ErrorCode.invalid_record


def test_a_wrong_crc(client, topic):
    wrong = bytearray(batch())
    wrong[-1] ^= 1
    assert client.produce(topic, bytes(wrong)).error_code == ErrorCode.corrupt_message


def test_a_batch_that_is_cut_short(client, topic, ours):
    assert client.produce(topic, batch(5)[:-3]).error_code == ErrorCode.corrupt_message


def test_too_large_for_the_topic(client):
    topic = client.create_topic(max_message_bytes=1000)
    assert client.produce(topic, batch(value=b"v" * 2000)).error_code == ErrorCode.message_too_large
    assert client.produce(topic, batch(value=b"v" * 500)).error_code == 0


def test_too_large_for_a_segment(client):
    topic = client.create_topic(segment_bytes=1_048_576, max_message_bytes=3_000_000)
    assert client.produce(topic, batch(value=b"v" * 1_500_000)).error_code == ErrorCode.record_list_too_large


def test_timestamps_that_are_out_of_bounds(client, now_ms):
    topic = client.create_topic(message_timestamp_before_max_ms=10_000, message_timestamp_after_max_ms=20_000)
    assert client.produce(topic, batch(timestamp_ms=now_ms - 60_000)).error_code == ErrorCode.invalid_timestamp
    assert client.produce(topic, batch(timestamp_ms=now_ms + 60_000)).error_code == ErrorCode.invalid_timestamp
    assert client.produce(topic, batch(timestamp_ms=now_ms)).error_code == 0


def test_log_append_time(client, now_ms):
    topic = client.create_topic(message_timestamp_type="LogAppendTime")
    answer = client.produce(topic, batch(2, timestamp_ms=5))
    assert answer.log_append_time.timestamp() * 1000 >= now_ms
    (header,) = headers(client.read(topic).records)
    assert header.is_log_append_time
    assert header.max_timestamp == round(answer.log_append_time.timestamp() * 1000)


def test_a_compacted_topic_wants_keys(client):
    topic = client.create_topic(cleanup_policy="compact")
    answer = client.produce(topic, batch(2, key=None))
    assert answer.error_code == ErrorCode.invalid_record
    assert answer.error_message
    assert [each.batch_index for each in answer.record_errors] == [0, 1]
    assert client.produce(topic, batch(2)).error_code == 0


def test_one_partition_fails_alone(client):
    topic = client.create_topic(partitions=2)
    broken = batch()[:-1] + b"!"
    parts = [{"index": 0, "records": batch()}, {"index": 1, "records": broken}, {"index": 2, "records": batch()}]
    data = [{"name": topic, "partition_data": parts}]
    (answered,) = client.ask(Api.PRODUCE, 9, acks=1, timeout=1000, topic_data=data).responses
    codes = {part.index: part.error_code for part in answered.partition_responses}
    assert codes == {0: 0, 1: ErrorCode.corrupt_message, 2: ErrorCode.unknown_topic_or_partition}


def test_one_topic_fails_alone(client, topic):
    data = [{"name": name, "partition_data": [{"index": 0, "records": batch()}]} for name in (topic, unique("missing"))]
    answered = client.ask(Api.PRODUCE, 9, acks=1, timeout=1000, topic_data=data).responses
    codes = {part.name: part.partition_responses[0].error_code for part in answered}
    assert codes == {data[0]["name"]: 0, data[1]["name"]: ErrorCode.unknown_topic_or_partition}


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_is_kept_as_it_came(client, topic, codec):
    assert client.produce(topic, batch(3, codec=codec)).error_code == 0
    records = client.read(topic).records
    assert headers(records)[0].codec_number == codec
    assert len(values(records)) == 3


def test_zstd_needs_v7(client, topic):
    zstd = batch(codec=Codec.zstd)
    assert client.produce(topic, zstd, version=6).error_code == ErrorCode.unsupported_compression_type
    assert client.produce(topic, zstd, version=7).error_code == 0


@pytest.mark.parametrize("internal", ["__consumer_offsets", "__transaction_state"])
def test_internal_topics_are_the_brokers_own(client, internal, ours):
    assert client.produce(internal).error_code == ErrorCode.invalid_topic_exception


@pytest.mark.parametrize("fields", [{"is_control": True, "producer_id": 1, "producer_epoch": 0, "base_sequence": 0}])
def test_clients_write_no_control_records(client, topic, fields):
    assert client.produce(topic, batch(**fields)).error_code == ErrorCode.invalid_record


def test_a_request_without_topics(client):
    assert client.ask(Api.PRODUCE, 9, acks=1, timeout=1000, topic_data=[]).responses == ()


@pytest.mark.parametrize("version", [0, 1, 2])
def test_versions_before_batches_are_not_spoken(client, version):
    from struct import pack

    client.send_frame(pack(">hhih", 0, version, 7, -1) + bytes(10))
    with pytest.raises(ClosedByPeer):
        client.read_frame()


class Idempotent:
    """A producer that counts for itself."""

    def __init__(self, client, topic):
        self._client, self._topic = client, topic
        self.producer_id = client.ask(Api.INIT_PRODUCER_ID, 4, transaction_timeout=1000).producer_id

    def send(self, sequence, count=1, epoch=0):
        fields = {"producer_id": self.producer_id, "producer_epoch": epoch, "base_sequence": sequence}
        answer = self._client.produce(self._topic, batch(count, **fields))
        return answer.error_code, answer.base_offset


@pytest.fixture
def producer(client, topic):
    return Idempotent(client, topic)


def test_a_repeated_batch_is_answered_with_its_first_offset(client, topic, producer):
    assert producer.send(0, 2) == (0, 0)
    assert producer.send(2, 3) == (0, 2)
    assert producer.send(2, 3) == (0, 2)
    assert producer.send(0, 2) == (0, 0)
    assert client.offset(topic, -1).offset == 5


def test_a_gap_in_the_sequence_is_refused(producer):
    producer.send(0)
    assert producer.send(2) == (ErrorCode.out_of_order_sequence_number, -1)
    assert producer.send(1) == (0, 1)


def test_only_the_last_five_batches_are_known(producer):
    for sequence in range(6):
        producer.send(sequence)
    assert producer.send(1) == (0, 1)
    assert producer.send(0)[0] == ErrorCode.out_of_order_sequence_number


def test_an_old_epoch_is_refused(producer):
    producer.send(0, epoch=1)
    assert producer.send(1, epoch=0)[0] == ErrorCode.invalid_producer_epoch
    assert producer.send(1, epoch=1) == (0, 1)


def test_a_new_epoch_begins_at_sequence_zero(producer):
    producer.send(0)
    assert producer.send(5, epoch=1)[0] == ErrorCode.out_of_order_sequence_number
    assert producer.send(0, epoch=1) == (0, 1)


def test_an_unknown_producer_may_begin_anywhere(producer):
    assert producer.send(17) == (0, 0)


def test_time_of_a_duplicate_is_that_of_the_first(client):
    topic = client.create_topic(message_timestamp_type="LogAppendTime")
    producer_id = client.ask(Api.INIT_PRODUCER_ID, 4, transaction_timeout=1000).producer_id
    records = batch(producer_id=producer_id, producer_epoch=0, base_sequence=0, timestamp_ms=NOW_MS)
    assert client.produce(topic, records).log_append_time == client.produce(topic, records).log_append_time
