"""Fetch: where it begins, how much it brings, how long it waits, and what it refuses. Sessions: test_fetch_sessions."""

from uuid import uuid4

import pytest
from broker_harness import NOW_MS, Client, all_versions, batch, fetch_request, headers, on_loop, unique, values

from headrace import Broker
from headrace.log.partition_log import Origin
from headrace.protocol.api import Api
from headrace.protocol.batch_building import build_batch, control_record
from headrace.protocol.errors import ErrorCode
from headrace.protocol.record_body import ControlKind

BY_ID = 13


@pytest.fixture
def filled(client, topic):
    """Three batches of three records: offsets 0 to 8."""
    for number in range(3):
        assert client.produce(topic, batch(3, value=b"%d" % number)).error_code == 0
    return topic


@pytest.mark.parametrize("version", all_versions(Api.FETCH))
def test_every_version_reads_from_the_start(client, filled, version):
    answer = client.fetch((client.id_of(filled) if version >= BY_ID else filled, 0, 0), version)
    if version >= 7:
        assert (answer.error_code, answer.session_id) == (0, 0)
    (topic,) = answer.responses
    (partition,) = topic.partitions
    assert (partition.error_code, partition.high_watermark, partition.last_stable_offset) == (0, 9, 9)
    if version >= 5:
        assert partition.log_start_offset == 0
    assert [header.base_offset for header in headers(partition.records)] == [0, 3, 6]
    assert partition.aborted_transactions in ((), None)


@pytest.mark.parametrize("offset", [3, 4, 5])
def test_the_first_batch_contains_the_offset(client, filled, offset):
    assert [header.base_offset for header in headers(client.read(filled, offset).records)] == [3, 6]


def test_at_the_end_there_is_nothing(client, filled):
    answer = client.read(filled, 9)
    assert (answer.error_code, answer.records, answer.high_watermark) == (0, b"", 9)


@pytest.mark.parametrize("offset", [10, -1, -2])
def test_outside_of_the_log(client, filled, offset):
    answer = client.read(filled, offset)
    assert answer.error_code == ErrorCode.offset_out_of_range
    assert (answer.high_watermark, answer.log_start_offset, answer.last_stable_offset) == (-1, -1, -1)
    assert not answer.records


def test_below_the_log_start(client, filled):
    wanted = [{"partition_index": 0, "offset": 4}]
    client.ask(Api.DELETE_RECORDS, 2, topics=[{"name": filled, "partitions": wanted}], timeout=1000)
    assert client.read(filled, 3).error_code == ErrorCode.offset_out_of_range
    answer = client.read(filled, 4)
    assert (answer.error_code, answer.log_start_offset) == (0, 4)
    assert headers(answer.records)[0].base_offset == 3


def test_unknown_topic_and_partition(client, filled):
    assert client.read(unique()).error_code == ErrorCode.unknown_topic_or_partition
    (topic,) = client.fetch((filled, 7, 0)).responses
    assert topic.partitions[0].error_code == ErrorCode.unknown_topic_or_partition


def test_unknown_topic_id(client):
    missing = uuid4()
    (topic,) = client.fetch((missing, 0, 0), BY_ID).responses
    assert topic.topic_id == missing
    assert topic.partitions[0].error_code == ErrorCode.unknown_topic_id


def test_leader_epochs(client, filled):
    assert client.read(filled, current_leader_epoch=0).error_code == 0
    assert client.read(filled, current_leader_epoch=5).error_code == ErrorCode.unknown_leader_epoch


def test_an_older_leader_epoch_is_fenced(shared_broker, client, filled):
    shared_broker.core.partitions.get(filled, 0).leader_epoch = 3
    assert client.read(filled, current_leader_epoch=2).error_code == ErrorCode.fenced_leader_epoch
    assert client.read(filled, current_leader_epoch=3).error_code == 0


def test_a_reader_that_parted_from_the_log_is_told_where(shared_broker, client, filled):
    shared_broker.core.partitions.get(filled, 0).leader_epoch = 2
    client.produce(filled)
    parted = client.read(filled, 10, last_fetched_epoch=1)
    assert (parted.error_code, parted.diverging_epoch.epoch, parted.diverging_epoch.end_offset) == (0, 0, 9)
    assert not parted.records
    agreeing = client.read(filled, 9, last_fetched_epoch=0)
    assert agreeing.diverging_epoch.epoch == -1
    assert len(headers(agreeing.records)) == 1


def test_a_reader_with_an_epoch_that_never_was(client, filled):
    assert client.read(filled, 9, last_fetched_epoch=4).error_code == ErrorCode.offset_out_of_range


# -- how much


def test_partition_max_bytes_keeps_whole_batches(client, filled):
    size_bytes = len(batch(3, value=b"0"))
    assert len(headers(client.read(filled, partition_max_bytes=2 * size_bytes).records)) == 2


@pytest.mark.parametrize("limits", [{"partition_max_bytes": 1}, {"max_bytes": 1}, {"max_bytes": 0}])
def test_one_batch_comes_whole_even_if_it_is_too_large(client, filled, limits):
    (first,) = headers(client.read(filled, **limits).records)
    assert first.base_offset == 0


def test_only_the_first_partition_with_data_may_exceed_max_bytes(client):
    topic = client.create_topic(partitions=3)
    client.produce(topic, partition=1)
    client.produce(topic, partition=2)
    (answer,) = client.fetch([(topic, index, 0) for index in range(3)], max_bytes=1).responses
    assert [len(headers(part.records)) for part in answer.partitions] == [0, 1, 0]


def test_a_batch_beyond_max_bytes_leaves_no_room_for_others(client):
    topic = client.create_topic(partitions=2)
    client.produce(topic, batch(value=b"v" * 5000), partition=0)
    client.produce(topic, partition=1)
    (answer,) = client.fetch([(topic, 0, 0), (topic, 1, 0)], max_bytes=1000).responses
    assert [len(headers(part.records)) for part in answer.partitions] == [1, 0]


def test_max_bytes_holds_for_all_partitions_together(client):
    topic, size_bytes = client.create_topic(partitions=3), len(batch())
    for index in range(3):
        client.produce(topic, partition=index)
    (answer,) = client.fetch([(topic, index, 0) for index in range(3)], max_bytes=2 * size_bytes).responses
    assert [len(headers(part.records)) for part in answer.partitions] == [1, 1, 0]


def test_a_second_batch_that_is_larger_than_its_limit_waits_for_its_turn(client):
    topic = client.create_topic(partitions=2)
    client.produce(topic, partition=0)
    client.produce(topic, batch(value=b"v" * 5000), partition=1)
    (answer,) = client.fetch([(topic, 0, 0), (topic, 1, 0)], partition_max_bytes=1000).responses
    assert [len(headers(part.records)) for part in answer.partitions] == [1, 0]


def test_an_error_beside_data_does_not_hide_it(client, filled):
    answer = client.fetch([(filled, 0, 0), (unique(), 0, 0)], max_wait=5000, min_bytes=1 << 20)
    codes = {topic.topic: topic.partitions[0].error_code for topic in answer.responses}
    assert codes.pop(filled) == 0
    assert list(codes.values()) == [ErrorCode.unknown_topic_or_partition]


# -- how long


def asks_and_waits(client, other, wanted, **fields):
    """Sends a fetch, then makes sure with another connection's request that the broker has begun with it."""
    client.send(Api.FETCH, 12, **fetch_request(wanted, **fields))
    client.socket.setblocking(False)
    for _ in range(2):
        other.offset(wanted[0], -1)
    with pytest.raises(BlockingIOError):
        client.socket.recv(1)
    client.socket.settimeout(10)


@pytest.fixture
def other(address):
    with Client(address) as made:
        yield made


def test_max_wait_passes_before_an_empty_answer(client, topic):
    from time import monotonic

    began = monotonic()
    client.send(Api.FETCH, 12, **fetch_request((topic, 0, 0), max_wait=50))
    assert client.receive().responses[0].partitions[0].records == b""
    assert monotonic() - began >= 0.049


def test_a_produce_wakes_a_waiting_fetch(client, other, topic):
    asks_and_waits(client, other, (topic, 0, 0), max_wait=60_000)
    other.produce(topic, batch(value=b"woken"))
    assert values(client.receive().responses[0].partitions[0].records) == [b"woken"]


def test_min_bytes_must_be_there(client, other, topic):
    size_bytes = len(batch())
    asks_and_waits(client, other, (topic, 0, 0), max_wait=60_000, min_bytes=2 * size_bytes)
    other.produce(topic)
    client.socket.setblocking(False)
    with pytest.raises(BlockingIOError):
        client.socket.recv(1)
    client.socket.settimeout(10)
    other.produce(topic)
    assert len(headers(client.receive().responses[0].partitions[0].records)) == 2


def test_min_bytes_of_zero_is_answered_at_once(client, topic):
    assert client.read(topic, max_wait=60_000, min_bytes=0).records == b""


def test_a_request_for_nothing_is_answered_at_once(client):
    assert client.fetch([], max_wait=60_000).responses == ()


def test_deleting_the_topic_ends_the_wait(client, other, topic):
    asks_and_waits(client, other, (topic, 0, 0), max_wait=60_000)
    other.ask(Api.DELETE_TOPICS, 3, topic_names=[topic], timeout=1000)
    (answered,) = client.receive().responses
    assert answered.partitions[0].error_code in (
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.not_leader_or_follower,
    )


def test_a_disk_that_fails_while_one_waits_harms_no_producer(other, tmp_path, ours):
    folders = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    with Broker(config={"log.dirs": folders}) as broker, Client(broker.bootstrap_servers) as waiting:
        topic = waiting.create_topic(partitions=2)
        waiting.send(Api.FETCH, 12, **fetch_request([(topic, 0, 0), (topic, 1, 0)], max_wait=60_000, min_bytes=500))
        with Client(broker.bootstrap_servers) as producing:
            producing.produce(topic, partition=1)
            log_dir = broker.core.partitions.get(topic, 1).log.log_dir
            log_dir.error = OSError(5, "failed by the test")
            assert producing.produce(topic, partition=0).error_code == 0
        codes = {part.partition_index: part.error_code for part in waiting.receive().responses[0].partitions}
        assert codes == {0: 0, 1: ErrorCode.kafka_storage_error}
        log_dir.error = None


def test_a_wait_does_not_hold_up_other_connections(client, other, topic):
    asks_and_waits(client, other, (topic, 0, 0), max_wait=60_000)
    assert other.produce(topic).error_code == 0


def test_read_committed_of_a_topic_without_transactions(client, filled):
    answer = client.read(filled, isolation_level=1)
    assert len(headers(answer.records)) == 3
    assert answer.aborted_transactions in ((), None)
    assert answer.last_stable_offset == 9


# -- transactions (their batches are put into the log directly: the coordinator is not there yet)


@pytest.fixture
def transactions(shared_broker, client, topic):
    """Offsets 0 and 1 plain, 2 of an aborted transaction, 3 its marker, 4 plain, 5 of an open one, 6 plain."""

    def transactional(producer_id):
        return batch(producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)

    def marker(producer_id):
        record = control_record(ControlKind.abort, 0, timestamp_ms=NOW_MS)
        fields = {"producer_id": producer_id, "producer_epoch": 0, "is_transactional": True, "is_control": True}
        return build_batch([record], **fields)

    def write():
        partition = shared_broker.core.partitions.get(topic, 0)
        for records in (batch(2), transactional(1), marker(1), batch(), transactional(2), batch()):
            partition.append(records, Origin.COORDINATOR)

    on_loop(shared_broker, write)
    return topic


def test_read_committed_stops_at_an_open_transaction(client, transactions):
    answer = client.read(transactions, isolation_level=1)
    assert (answer.high_watermark, answer.last_stable_offset) == (7, 5)
    assert [header.base_offset for header in headers(answer.records)] == [0, 2, 3, 4]
    assert [(each.producer_id, each.first_offset) for each in answer.aborted_transactions] == [(1, 2)]


def test_read_uncommitted_sees_everything(client, transactions):
    answer = client.read(transactions)
    assert headers(answer.records)[-1].base_offset == 6
    assert answer.last_stable_offset == 5
    assert not answer.aborted_transactions


def test_aborted_transactions_before_the_offset_are_left_out(client, transactions):
    assert client.read(transactions, 4, isolation_level=1).aborted_transactions == ()


def test_the_end_that_read_committed_is_told(client, transactions):
    for isolation, end in ((0, 7), (1, 5)):
        wanted = [{"partition_index": 0, "timestamp": -1}]
        topics = [{"name": transactions, "partitions": wanted}]
        answer = client.ask(Api.LIST_OFFSETS, 7, replica_id=-1, isolation_level=isolation, topics=topics)
        assert answer.topics[0].partitions[0].offset == end
