"""Positions, fetch sessions and what a reader may see, without a socket."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.consumer.fetch_positions import FetchOutcome, FetchPositions, PartitionLeader
from headrace.client.consumer.fetch_session import FetchSession, PartitionFetch
from headrace.client.consumer.fetched_batches import FetchedBatch, read_batches
from headrace.client.offset_reset import EARLIEST, LATEST, NONE, OffsetReset, ResetKind, parse_offset_reset
from headrace.client.types import OffsetAndMetadata, TopicPartition
from headrace.protocol.batch_building import build_batch, control_record
from headrace.protocol.errors import CorruptMessage, ErrorCode
from headrace.protocol.record_body import ControlKind, Record, decode_records
from headrace.protocol.wire.consumer_fetch import AbortedTransaction, PartitionAnswer

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
ID, OTHER_ID = UUID(int=1), UUID(int=2)


def batch(first: int, count: int = 1, **options: object) -> bytes:
    records = [Record(offset, 0, None, b"%d" % offset) for offset in range(first, first + count)]
    return bytes(build_batch(records, base_offset=first, leader_epoch=3, **options))


def in_transaction(first: int, producer_id: int, count: int = 1) -> bytes:
    return batch(first, count, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)


def marker(offset: int, producer_id: int, kind: ControlKind) -> bytes:
    record = control_record(kind, 0, offset=offset, timestamp_ms=0)
    options = {"producer_id": producer_id, "producer_epoch": 0, "is_transactional": True, "is_control": True}
    return bytes(build_batch([record], base_offset=offset, **options))


def answer(*batches: bytes, end: int = 100, **fields: object) -> PartitionAnswer:
    return PartitionAnswer(records=memoryview(b"".join(batches)), high_watermark=end, last_stable_offset=end, **fields)


def decode(partition: TopicPartition, fetched: FetchedBatch) -> list[Record]:
    return decode_records(fetched.data)


def wanted(offset: int) -> PartitionFetch:
    return PartitionFetch(ID, offset)


def led_by_one(partition: TopicPartition) -> PartitionLeader:
    return PartitionLeader(1, 5, ID)


def at(offset: int = 0, *partitions: TopicPartition, **options: object) -> FetchPositions:
    positions = FetchPositions(EARLIEST, **options)
    positions.assign(partitions or (A0,))
    for partition in partitions or (A0,):
        positions.seek(partition, offset)
    return positions


def offsets(taken: dict[TopicPartition, list[Record]]) -> dict[TopicPartition, list[int]]:
    return {partition: [record.offset for record in records] for partition, records in taken.items()}


def asks(positions: FetchPositions) -> dict[TopicPartition, int]:
    """By partitions, on one node, in requests that all get lost."""
    requests, _ = positions.requests(led_by_one)
    for node_id in requests:
        positions.lost(node_id)
    return {one: asked.fetch_offset for request in requests.values() for one, asked in request.asked.items()}


# ------------------------------------------------------------------------------------------------- auto.offset.reset


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", EARLIEST),
        ("Latest", LATEST),
        ("none", NONE),
        ("by_duration:P1DT2H3M4S", OffsetReset(ResetKind.BY_DURATION, 93_784_000)),
        ("by_duration:PT0.5S", OffsetReset(ResetKind.BY_DURATION, 500)),
        ("by_duration:p2d", OffsetReset(ResetKind.BY_DURATION, 172_800_000)),
    ],
)
def test_reset_strategies_are_read(text, expected):
    assert parse_offset_reset(text) == expected


@pytest.mark.parametrize(
    "text", ["", "first", "by_duration:", "by_duration:P", "by_duration:P1DT", "by_duration:-PT1S"]
)
def test_other_strategies_are_refused(text):
    with pytest.raises(ValueError):
        parse_offset_reset(text)


def test_a_reset_asks_for_a_timestamp():
    assert [one.timestamp_ms(9_000) for one in (EARLIEST, LATEST)] == [-2, -1]
    assert parse_offset_reset("by_duration:PT2S").timestamp_ms(9_000) == 7_000


# ---------------------------------------------------------------------------------------------------------- sessions


def test_a_session_sends_all_and_then_what_changed():
    session = FetchSession()
    first = session.next_request({A0: wanted(0), A1: wanted(0)})
    assert (first.session_id, first.session_epoch, first.is_full) == (0, 0, True)
    assert session.answered(77)
    second = session.next_request({A0: wanted(5), A1: wanted(0)})
    assert (second.session_id, second.session_epoch) == (77, 1)
    assert (second.partitions, second.forgotten) == ({A0: wanted(5)}, {})
    assert session.answered(77)
    third = session.next_request({A0: wanted(5), B0: wanted(0)})
    assert (third.session_epoch, third.partitions, third.forgotten) == (2, {B0: wanted(0)}, {A1: ID})
    assert third.asked == {A0: wanted(5), B0: wanted(0)}


def test_a_topic_made_anew_is_forgotten_and_asked_for():
    session = FetchSession()
    session.next_request({A0: wanted(0)})
    session.answered(7)
    request = session.next_request({A0: PartitionFetch(OTHER_ID, 0)})
    assert (request.partitions, request.forgotten) == ({A0: PartitionFetch(OTHER_ID, 0)}, {A0: ID})


@pytest.mark.parametrize(
    ("error", "session_id"), [(ErrorCode.fetch_session_id_not_found, 0), (ErrorCode.invalid_fetch_session_epoch, 7)]
)
def test_a_refused_session_starts_again_in_full(error, session_id):
    session = FetchSession()
    session.next_request({A0: wanted(0)})
    session.answered(7)
    session.next_request({A0: wanted(1)})
    assert not session.answered(0, error)
    request = session.next_request({A0: wanted(1)})
    assert (request.session_id, request.session_epoch, request.partitions) == (session_id, 0, {A0: wanted(1)})


def test_a_lost_answer_closes_the_session():
    session = FetchSession()
    session.next_request({A0: wanted(0)})
    session.answered(7)
    session.next_request({A0: wanted(1)})
    session.lost()
    request = session.next_request({A0: wanted(1)})
    assert (request.session_id, request.session_epoch) == (7, 0)
    session.answered(8)
    closing = session.closing_request()
    assert closing is not None
    assert (closing.session_id, closing.session_epoch) == (8, -1)
    assert session.closing_request() is None


def test_a_broker_without_sessions_is_always_asked_in_full():
    session = FetchSession()
    for _ in range(3):
        assert session.next_request({A0: wanted(0)}).is_full
        assert session.answered(0)


def test_the_epoch_after_the_last_is_one():
    session = FetchSession()
    session.next_request({})
    session.answered(7)
    session.epoch = 2**31 - 1
    session.answered(7)
    assert session.epoch == 1


@given(st.lists(st.dictionaries(st.sampled_from([A0, A1, B0]), st.integers(0, 3).map(wanted))), st.data())
def test_the_broker_always_knows_what_is_wanted(rounds, data):
    session, remembered = FetchSession(), {}
    for want in rounds:
        request = session.next_request(want)
        if request.is_full:
            remembered = {}
        for gone in request.forgotten:
            del remembered[gone]
        remembered |= request.partitions
        assert remembered == want
        if data.draw(st.booleans()):
            session.answered(9)
        else:
            session.lost()


# -------------------------------------------------------------------------------------------------------- visibility


def visible(data: bytes, aborted: list[AbortedTransaction] | None, from_offset: int = 0) -> list[int]:
    found = read_batches(memoryview(data), aborted, from_offset)
    return [one.header.base_offset for one in found if one.is_visible]


LOG = b"".join(
    [
        in_transaction(0, 1),
        in_transaction(1, 2),
        batch(2),
        marker(3, 1, ControlKind.abort),
        in_transaction(4, 1),
        marker(5, 2, ControlKind.commit),
        marker(6, 1, ControlKind.commit),
        batch(7),
    ]
)


def test_aborted_records_are_hidden_up_to_their_marker():
    assert visible(LOG, [AbortedTransaction(1, 0)]) == [1, 2, 4, 7]


def test_read_uncommitted_sees_all_but_the_markers():
    assert visible(LOG, None) == [0, 1, 2, 4, 7]


def test_a_cut_last_batch_is_left_for_the_next_fetch():
    assert visible(LOG[:-1], None) == [0, 1, 2, 4]


def test_two_aborted_transactions_of_one_producer():
    log = (
        in_transaction(0, 1) + marker(1, 1, ControlKind.abort) + in_transaction(2, 1) + marker(3, 1, ControlKind.commit)
    )
    log += in_transaction(4, 1) + marker(5, 1, ControlKind.abort)
    assert visible(log, [AbortedTransaction(1, 4), AbortedTransaction(1, 0)]) == [2]


def test_positions_step_over_hidden_batches():
    positions = at(0, read_committed=True)
    log = in_transaction(0, 1, 3) + marker(3, 1, ControlKind.abort)
    assert positions.answered(A0, wanted(0), answer(log, aborted=[AbortedTransaction(1, 0)])) is FetchOutcome.NOTHING
    assert positions.position(A0) == 4
    assert asks(positions) == {A0: 4}


# --------------------------------------------------------------------------------------------------------- positions


def test_from_assignment_over_committed_and_reset_to_a_position():
    positions = FetchPositions(EARLIEST)
    positions.assign([A0, A1])
    assert positions.awaiting_committed() == {A0, A1}
    assert positions.committed_found(A0, OffsetAndMetadata(5, "", 2))
    assert positions.committed_found(A1, None)
    assert positions.awaiting_reset() == {A1: EARLIEST}
    assert asks(positions) == {A0: 5}
    positions.reset_found(A1, EARLIEST, 3)
    assert asks(positions) == {A0: 5, A1: 3}
    assert positions.consumed() == {A0: OffsetAndMetadata(5, "", 2), A1: OffsetAndMetadata(3)}


def test_nothing_committed_and_no_reset_is_the_callers_error():
    positions = FetchPositions(NONE)
    positions.assign([A0])
    assert not positions.committed_found(A0, None)


def test_a_seek_wins_over_lookups_under_way():
    positions = FetchPositions(EARLIEST)
    positions.assign([A0, A1])
    positions.seek(A0, 7)
    positions.committed_found(A0, OffsetAndMetadata(5))
    positions.seek_by(A1, EARLIEST)
    positions.seek_by(A1, LATEST)
    positions.reset_found(A1, EARLIEST, 0)
    assert (positions.position(A0), positions.position(A1)) == (7, None)


def test_no_record_young_enough_means_the_end():
    by_duration = parse_offset_reset("by_duration:PT1S")
    positions = at()
    positions.seek_by(A0, by_duration)
    positions.reset_found(A0, by_duration, -1)
    assert positions.awaiting_reset() == {A0: LATEST}


def test_a_new_assignment_keeps_what_stays():
    positions = at(4, A0, A1)
    positions.pause([A0])
    positions.assign([A0, B0])
    assert (positions.position(A0), positions.position(B0), positions.paused()) == (4, None, {A0})
    assert positions.assignment() == {A0, B0}


def test_lag_follows_the_isolation():
    says = PartitionAnswer(high_watermark=10, last_stable_offset=8)
    for read_committed, lag in ((False, 6), (True, 4)):
        positions = at(4, read_committed=read_committed)
        assert positions.lag(A0) is None
        positions.answered(A0, wanted(4), says)
        assert positions.lag(A0) == lag


# ---------------------------------------------------------------------------------------------------------- fetching


def test_each_leader_is_asked_for_its_own():
    positions = at(0, A0, A1, B0)
    leaders = {A0: PartitionLeader(1, 4, ID), A1: PartitionLeader(2, 4, ID)}
    requests, leaderless = positions.requests(leaders.get)
    assert {node_id: set(request.partitions) for node_id, request in requests.items()} == {1: {A0}, 2: {A1}}
    assert requests[1].partitions[A0].current_leader_epoch == 4
    assert leaderless == {B0}
    assert positions.requests(leaders.get, busy={1})[0].keys() == {2}


def test_paused_partitions_are_not_asked_for():
    positions = at(0, A0, A1, B0)
    positions.pause([A1])
    assert asks(positions) == {A0: 0, B0: 0}
    positions.resume([A1])
    assert asks(positions) == {A0: 0, A1: 0, B0: 0}


def test_a_full_buffer_holds_up_its_node_and_no_other():
    # The broker may hold a request that leaves it out, long after the buffer is empty again.
    positions = at(0, A0, A1, B0)
    positions.answered(A0, wanted(0), answer(batch(0)))
    leaders = {A0: PartitionLeader(1), A1: PartitionLeader(1), B0: PartitionLeader(2)}
    assert positions.requests(leaders.get)[0].keys() == {2}
    positions.pause([A0])
    assert set(positions.requests(leaders.get, busy={2})[0][1].asked) == {A1}
    positions.resume([A0])
    positions.take(1, decode)
    assert asks(positions) == {A1: 0, B0: 0, A0: 1}


def test_a_held_partition_rests_until_it_is_released():
    positions = at(0, A0)
    positions.hold(A0)
    assert asks(positions) == {}
    positions.release(A0)
    assert asks(positions) == {A0: 0}


def test_fetching_ahead_goes_on_behind_the_buffer_until_it_is_full():
    positions = at(0, buffer_bytes=len(batch(0)))
    assert positions.answered(A0, wanted(0), answer(batch(0))) is FetchOutcome.BUFFERED
    assert asks(positions) == {A0: 1}
    assert positions.answered(A0, wanted(1), answer(batch(1))) is FetchOutcome.BUFFERED
    assert asks(positions) == {}
    assert offsets(positions.take(10, decode)) == {A0: [0, 1]}


def test_room_for_more_is_known_when_records_are_taken():
    positions = at(0, A0)
    assert asks(positions) == {A0: 0}
    positions.answered(A0, wanted(0), answer(batch(0)))
    assert not positions.has_room_again()  # nothing was refused for want of room
    assert asks(positions) == {}
    assert not positions.has_room_again()
    positions.take(1, decode)
    assert positions.has_room_again()
    assert asks(positions) == {A0: 1}
    assert not positions.has_room_again()


def test_an_error_ahead_is_told_when_the_buffer_is_empty():
    positions = at(0, buffer_bytes=1000)
    positions.answered(A0, wanted(0), answer(batch(0)))
    gone = PartitionAnswer(ErrorCode.offset_out_of_range)
    assert positions.answered(A0, wanted(1), gone) is FetchOutcome.NOTHING
    assert asks(positions) == {}
    positions.take(1, decode)
    assert asks(positions) == {A0: 1}
    assert positions.answered(A0, wanted(1), gone) is FetchOutcome.RESET
    assert positions.awaiting_reset() == {A0: EARLIEST}


def test_an_answer_from_before_a_seek_is_dropped():
    positions = at(0)
    positions.seek(A0, 50)
    assert positions.answered(A0, wanted(0), answer(batch(0))) is FetchOutcome.STALE
    assert positions.answered(B0, wanted(0), answer(batch(0))) is FetchOutcome.STALE
    assert positions.take(1, decode) == {}


@pytest.mark.parametrize(
    ("error", "effect"),
    [
        (ErrorCode.not_leader_or_follower, FetchOutcome.REFRESH),
        (ErrorCode.unknown_topic_id, FetchOutcome.REFRESH),
        (ErrorCode.unknown_server_error, FetchOutcome.NOTHING),
        (ErrorCode.topic_authorization_failed, FetchOutcome.FAILED),
    ],
)
def test_errors_leave_the_position(error, effect):
    positions = at(3)
    assert positions.answered(A0, wanted(3), PartitionAnswer(error)) is effect
    assert asks(positions) == {A0: 3}


def test_out_of_range_without_a_reset_is_the_callers_error():
    positions = FetchPositions(NONE)
    positions.assign([A0])
    positions.seek(A0, 9)
    assert positions.answered(A0, wanted(9), PartitionAnswer(ErrorCode.offset_out_of_range)) is FetchOutcome.FAILED


def test_a_preferred_replica_is_asked_until_it_fails():
    positions = at(0)
    positions.answered(A0, wanted(0), PartitionAnswer(preferred_read_replica=9))
    assert positions.requests(led_by_one)[0].keys() == {9}
    assert positions.answered(A0, wanted(0), PartitionAnswer(ErrorCode.offset_out_of_range)) is FetchOutcome.NOTHING
    assert positions.requests(led_by_one)[0].keys() == {1}


def test_a_cut_first_batch_fails():
    assert at(0).answered(A0, wanted(0), answer(batch(0)[:-1])) is FetchOutcome.FAILED


# ------------------------------------------------------------------------------------------------------- handing out


def test_records_are_handed_out_in_portions_and_positions_follow():
    positions = at(1)
    positions.answered(A0, wanted(1), answer(batch(0, 4), batch(4)))
    assert offsets(positions.take(2, decode)) == {A0: [1, 2]}
    assert positions.consumed() == {A0: OffsetAndMetadata(3, leader_epoch=3)}
    assert offsets(positions.take(9, decode)) == {A0: [3, 4]}
    assert (positions.position(A0), positions.buffered_bytes()) == (5, 0)


def test_a_partition_that_gave_goes_behind_the_others():
    positions = at(0, A0, A1)
    for partition in (A0, A1):
        positions.answered(partition, wanted(0), answer(batch(0, 4)))
    given_ = [offsets(positions.take(2, decode)) for _ in range(4)]
    assert given_ == [{A0: [0, 1]}, {A1: [0, 1]}, {A0: [2, 3]}, {A1: [2, 3]}]


def test_a_pause_keeps_the_buffer_and_a_seek_drops_it():
    positions = at(0)
    positions.answered(A0, wanted(0), answer(batch(0, 2)))
    positions.pause([A0])
    assert positions.take(9, decode) == {}
    positions.resume([A0])
    assert offsets(positions.take(1, decode)) == {A0: [0]}
    positions.seek(A0, 0)
    assert positions.take(9, decode) == {}
    assert asks(positions) == {A0: 0}


def test_a_bad_batch_is_told_after_what_came_before_it():
    positions = at(0)
    bad = bytearray(batch(1))
    bad[-1] ^= 1
    positions.answered(A0, wanted(0), answer(batch(0), bytes(bad), batch(2)))
    assert offsets(positions.take(9, decode)) == {A0: [0]}
    for _ in range(2):
        with pytest.raises(CorruptMessage):
            positions.take(9, decode)
    assert positions.position(A0) == 1


def test_whole_batches_for_who_decodes_by_himself():
    positions = at(1)
    positions.answered(A0, wanted(1), answer(batch(0, 4), batch(4), batch(5)))
    positions.take(1, decode)
    taken = positions.take_batches(len(batch(0, 4)) + len(batch(4)))
    assert [(one.from_offset, one.batch.header.base_offset) for one in taken] == [(2, 0), (4, 4)]
    assert positions.position(A0) == 5
    assert len(positions.take_batches(1)) == 1
    assert positions.take_batches(1) == []


@given(st.lists(st.integers(1, 4), min_size=1, max_size=8), st.integers(0, 3), st.lists(st.integers(1, 5), max_size=30))
def test_every_record_is_handed_out_once_in_order(sizes, start, portions):
    log, end = b"", 0
    for size in sizes:
        log, end = log + batch(end, size), end + size
    positions = at(start)
    positions.answered(A0, wanted(start), answer(log))
    found: list[int] = []
    for portion in [*portions, 100]:
        given_ = offsets(positions.take(portion, decode)).get(A0, [])
        assert len(given_) <= portion
        found += given_
        assert positions.position(A0) == (found[-1] + 1 if found else start)
    assert found == list(range(start, end))
