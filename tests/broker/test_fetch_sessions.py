"""Fetch sessions (KIP-227): through the protocol, and the cache of them by itself."""

from types import SimpleNamespace
from uuid import uuid4

import pytest
from broker_harness import batch, headers

from headrace.broker.fetch_sessions import FetchSessions
from headrace.protocol.api import Api
from headrace.protocol.errors import (
    ErrorCode,
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
)
from headrace.testing import ManualClock


def told(answer):
    return [
        (part.partition_index, len(headers(part.records))) for topic in answer.responses for part in topic.partitions
    ]


@pytest.fixture
def topic(client):
    return client.create_topic(partitions=3)


class Session:
    """A client's side: counts the epochs."""

    def __init__(self, client, wanted, **fields):
        self._client, self._fields = client, fields
        self.first = client.fetch(wanted, session_id=0, session_epoch=0, **fields)
        self.session_id, self.epoch = self.first.session_id, 0

    def ask(self, wanted=(), **fields):
        self.epoch += 1
        wanted = wanted or []
        return self._client.fetch(
            wanted, session_id=self.session_id, session_epoch=self.epoch, **{**self._fields, **fields}
        )


@pytest.fixture
def session(client, topic):
    return Session(client, [(topic, index, 0) for index in range(3)])


def test_a_full_answer_has_all_partitions(session):
    assert session.session_id > 0
    assert told(session.first) == [(0, 0), (1, 0), (2, 0)]


def test_an_incremental_answer_has_only_what_changed(client, topic, session):
    assert told(session.ask()) == []
    client.produce(topic, partition=1)
    assert told(session.ask()) == [(1, 1)]


def test_a_partition_whose_end_moved_is_told_without_data(client, topic, session):
    client.produce(topic, partition=2)
    assert told(session.ask([(topic, 2, 1)])) == [(2, 0)]
    assert told(session.ask()) == []


def test_what_is_not_moved_on_is_sent_again(client, topic, session):
    client.produce(topic, partition=1)
    assert told(session.ask()) == told(session.ask()) == [(1, 1)]
    assert told(session.ask([(topic, 1, 1)])) == []


def test_a_partition_is_added_and_another_forgotten(client, topic):
    session = Session(client, [(topic, 0, 0)])
    assert told(session.ask([(topic, 1, 0)], forgotten=[(topic, [0])])) == [(1, 0)]
    client.produce(topic, partition=0)
    client.produce(topic, partition=1)
    assert told(session.ask()) == [(1, 1)]


def test_an_error_is_told_each_time(client, topic):
    session = Session(client, [(topic, 0, 0), (topic, 9, 0)])
    for _ in range(2):
        (answer,) = session.ask().responses
        assert [(part.partition_index, part.error_code) for part in answer.partitions] == [(9, 3)]


def test_served_partitions_come_last_next_time(client, topic, session):
    for index in range(3):
        client.produce(topic, partition=index)
    one = len(batch())
    turns = [told(session.ask(max_bytes=one)) for _ in range(4)]
    served = [index for turn in turns for index, count in turn if count]
    assert served == [0, 1, 2, 0]


def test_a_wrong_epoch(client, session):
    answer = client.fetch([], session_id=session.session_id, session_epoch=5)
    assert (answer.error_code, answer.responses) == (ErrorCode.invalid_fetch_session_epoch, ())
    assert answer.session_id == 0


def test_an_unknown_session(client, session):
    answer = client.fetch([], session_id=session.session_id ^ 1, session_epoch=1)
    assert answer.error_code == ErrorCode.fetch_session_id_not_found


def test_closing_a_session(client, topic, session):
    closing = client.fetch([(topic, 0, 0)], session_id=session.session_id, session_epoch=-1)
    assert (closing.error_code, closing.session_id, told(closing)) == (0, 0, [(0, 0)])
    assert session.ask().error_code == ErrorCode.fetch_session_id_not_found


def test_beginning_anew_ends_the_old_session(client, topic, session):
    again = client.fetch([(topic, 0, 0)], session_id=session.session_id, session_epoch=0)
    assert again.session_id not in (0, session.session_id)
    assert session.ask().error_code == ErrorCode.fetch_session_id_not_found


def test_a_session_may_begin_with_nothing(client, topic):
    session = Session(client, [])
    assert session.session_id > 0
    assert told(session.ask([(topic, 1, 0)])) == [(1, 0)]


def test_forgetting_everything_ends_the_session(client, topic, session):
    gone = session.ask(forgotten=[(topic, [0, 1, 2])])
    assert (gone.error_code, gone.session_id, gone.responses) == (0, 0, ())
    assert session.ask().error_code == ErrorCode.fetch_session_id_not_found


def test_a_session_stays_with_names_or_ids(client, topic, session):
    answer = client.fetch([], 13, session_id=session.session_id, session_epoch=1)
    assert answer.error_code == ErrorCode.fetch_session_topic_id_error


def test_a_session_by_ids(client, topic):
    topic_id = client.id_of(topic)
    first = client.fetch([(topic_id, 0, 0)], 13, session_id=0, session_epoch=0)
    client.produce(topic)
    second = client.fetch([], 13, session_id=first.session_id, session_epoch=1)
    assert second.responses[0].topic_id == topic_id
    assert told(second) == [(0, 1)]


def test_a_deleted_topic_in_a_session(client, topic, session):
    client.ask(Api.DELETE_TOPICS, 3, topic_names=[topic], timeout=1000)
    codes = {part.error_code for answer in session.ask().responses for part in answer.partitions}
    assert codes <= {ErrorCode.unknown_topic_or_partition, ErrorCode.not_leader_or_follower}
    assert codes


# -- the cache


def body(count=1, session_id=0, epoch=0, name="t"):
    wanted = [SimpleNamespace(partition=index, fetch_offset=0, partition_max_bytes=1) for index in range(count)]
    topics = [SimpleNamespace(topic=name, topic_id=name, partitions=wanted)] if count else []
    return SimpleNamespace(session_id=session_id, session_epoch=epoch, topics=topics, forgotten_topics_data=[])


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def sessions(clock):
    return FetchSessions(clock, slots=lambda: 2, eviction_ms=lambda: 1000)


def opened(sessions, count=1):
    return sessions.open(body(count), by_topic_id=False).session_id


def test_without_a_free_slot_there_is_no_session(sessions):
    assert opened(sessions)
    assert opened(sessions)
    assert opened(sessions) == 0
    assert len(sessions) == 2


def test_the_longest_unused_gives_way(sessions, clock):
    first, second = opened(sessions, 5), opened(sessions, 5)
    clock.advance(1001)
    sessions.open(body(0, first, 1), by_topic_id=False)
    assert opened(sessions)
    assert next(each.session_id for each in sessions) == first
    with pytest.raises(FetchSessionIdNotFound):
        sessions.open(body(0, second, 1), by_topic_id=False)
    assert sessions.evicted == 1


def test_a_larger_client_displaces_a_smaller_one_that_lived_long_enough(sessions, clock):
    small, large = opened(sessions, 1), opened(sessions, 9)
    clock.advance(1001)
    for session_id in (small, large):
        sessions.open(body(0, session_id, 1), by_topic_id=False)
    assert opened(sessions, 1) == 0
    assert opened(sessions, 2)
    assert small not in [each.session_id for each in sessions]


def test_a_young_session_is_not_displaced_by_size(sessions, clock):
    opened(sessions, 1), opened(sessions, 1)
    clock.advance(1000)
    assert opened(sessions, 50) == 0


def test_no_slots_at_all(clock):
    sessions = FetchSessions(clock, slots=lambda: 0, eviction_ms=lambda: 0)
    assert opened(sessions) == 0


def test_the_epoch_wraps_to_one(sessions):
    session_id = opened(sessions)
    next(iter(sessions)).epoch = 2**31 - 1
    sessions.open(body(0, session_id, 2**31 - 1), by_topic_id=False)
    assert sessions.open(body(0, session_id, 1), by_topic_id=False).session_id == session_id


def test_an_error_changes_nothing(sessions):
    session_id = opened(sessions)
    with pytest.raises(InvalidFetchSessionEpoch):
        sessions.open(body(0, session_id, 2), by_topic_id=False)
    with pytest.raises(FetchSessionTopicIdError):
        sessions.open(body(1, session_id, 1, uuid4()), by_topic_id=True)
    assert sessions.open(body(0, session_id, 1), by_topic_id=False).is_incremental
