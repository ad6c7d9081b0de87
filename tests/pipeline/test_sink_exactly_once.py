"""Exactly once: tasks and driver are called in the order in which a crash may cut them short."""

from __future__ import annotations

from itertools import count

import pyarrow as pa
import pytest

from headrace import Admin, Broker, Consumer, TopicPartition
from headrace.client.prepared_transactions import TransactionLost
from headrace.pipeline import exactly_once
from headrace.pipeline.exactly_once import Ledger, Share, TaskPlace
from headrace.pipeline.sink import send_rows
from headrace.pipeline.sink_options import SinkOptions

_numbers = count()


@pytest.fixture(scope="module")
def broker():
    with Broker() as running:
        yield running


@pytest.fixture
def sink(broker):
    return Sink(broker, f"out{next(_numbers)}")


class Sink:
    """A query's sink: tasks write, the driver commits."""

    def __init__(self, broker, topic: str, query_id: str | None = "query") -> None:
        self.servers, self.topic, self.query_id = broker.bootstrap_servers, topic, query_id
        self.options = SinkOptions(
            client={"bootstrap.servers": self.servers}, topic=topic, transactional_id_prefix=f"tx-{topic}"
        )
        with Admin(bootstrap_servers=self.servers) as admin:
            admin.create_topic(topic)
        self.ledger = Ledger(self.options)

    def task(self, batch_id: int, task: int, *values: str) -> Share:
        batches = [pa.RecordBatch.from_pydict({"value": list(values)})] if values else []
        _, share = exactly_once.write_share(
            self.options,
            TaskPlace(task, self.query_id, batch_id),
            lambda producer, begin: send_rows(producer, self.topic, batches, before_first=begin),
        )
        return share

    def commit(self, *shares: Share) -> None:
        exactly_once.commit(self.options, list(shares))

    def abort(self, *shares: Share) -> None:
        exactly_once.abort(self.options, list(shares))

    def seen(self) -> list[str]:
        """By a reader of what is committed; nothing may be open."""
        place, found = TopicPartition(self.topic, 0), []
        with Consumer(
            bootstrap_servers=self.servers, isolation_level="read_committed", auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign([place])
            end = consumer.end_offsets(place)[place]
            while consumer.position(place) < end:
                found += [record.value.decode() for record in consumer.poll(100)]
        return sorted(found)


def test_what_tasks_wrote_is_seen_when_the_driver_has_committed(sink):
    shares = sink.task(0, 0, "a", "b"), sink.task(0, 1, "c")
    assert sink.seen() == []
    sink.commit(*shares)
    assert sink.seen() == ["a", "b", "c"]
    sink.commit(sink.task(1, 0, "d"), sink.task(1, 1, "e"))
    assert sink.seen() == ["a", "b", "c", "d", "e"]


def test_a_batch_that_was_committed_is_not_written_again(sink):
    sink.commit(sink.task(0, 0, "a"), sink.task(0, 1, "b"))
    replayed = sink.task(0, 0, "a"), sink.task(0, 1, "b")
    assert all(one.is_done_before and one.prepared is None for one in replayed)
    sink.commit(*replayed)
    assert sink.seen() == ["a", "b"]


def test_a_crash_before_the_decision_leaves_nothing(sink):
    sink.task(0, 0, "a")
    sink.task(0, 1, "b")
    # The driver dies; in the replay the rows are in other tasks.
    sink.commit(sink.task(0, 0, "b"), sink.task(0, 1, "a"))
    assert sink.seen() == ["a", "b"]


def test_a_crash_between_two_commits_is_finished_by_the_replay(sink):
    first, second = sink.task(0, 0, "a"), sink.task(0, 1, "b")
    sink.ledger.decide(first.place, sink.topic, {0: first.prepared, 1: second.prepared})
    sink.ledger.end([first.prepared], is_commit=True)
    # The driver dies. Even with its rows elsewhere the replay changes nothing.
    replayed = sink.task(0, 0, "b"), sink.task(0, 1, "a")
    assert all(one.is_done_before for one in replayed)
    sink.commit(*replayed)
    assert sink.seen() == ["a", "b"]


def test_the_driver_finishes_what_no_task_of_the_replay_asked_for(sink):
    shares = [sink.task(0, task, "abc"[task]) for task in range(3)]
    sink.ledger.decide(shares[0].place, sink.topic, {task: one.prepared for task, one in enumerate(shares)})
    sink.commit(sink.task(0, 0, "a", "b", "c"))
    assert sink.seen() == ["a", "b", "c"]


def test_what_timed_out_after_the_decision_is_written_again(sink):
    first, second = sink.task(0, 0, "a"), sink.task(0, 1, "b")
    sink.ledger.decide(first.place, sink.topic, {0: first.prepared, 1: second.prepared})
    sink.ledger.end([first.prepared], is_commit=True)
    with Admin(bootstrap_servers=sink.servers) as admin:  # as the coordinator does when the time is up
        admin.fence_producers([second.prepared.transactional_id]).all()
    with pytest.raises(TransactionLost):
        sink.ledger.end([second.prepared], is_commit=True)
    replayed = sink.task(0, 0, "a"), sink.task(0, 1, "b")
    assert [one.is_done_before for one in replayed] == [True, False]
    sink.commit(*replayed)
    assert sink.seen() == ["a", "b"]


def test_a_commit_may_be_repeated(sink):
    shares = sink.task(0, 0, "a"), sink.task(0, 1, "b")
    sink.commit(*shares)
    sink.commit(*shares)
    assert sink.seen() == ["a", "b"]


def test_tasks_that_failed_leave_nothing(sink):
    sink.abort(sink.task(0, 0, "a"))
    assert sink.seen() == []
    sink.commit(sink.task(0, 0, "a"), sink.task(0, 1, "b"))
    assert sink.seen() == ["a", "b"]


def test_what_was_decided_is_not_aborted(sink):
    shares = sink.task(0, 0, "a"), sink.task(0, 1, "b")
    sink.ledger.decide(shares[0].place, sink.topic, {task: one.prepared for task, one in enumerate(shares)})
    sink.abort(*shares)  # as Spark does when a commit fails
    sink.commit(sink.task(0, 0, "a"), sink.task(0, 1, "b"))
    assert sink.seen() == ["a", "b"]


def test_a_task_without_rows_opens_nothing(sink):
    empty = sink.task(0, 0)
    assert empty.prepared is None
    sink.commit(empty, sink.task(0, 1, "b"))
    sink.commit(sink.task(1, 0))
    assert sink.seen() == ["b"]


def test_another_query_begins_its_numbers_anew(sink):
    sink.commit(sink.task(7, 0, "a"), sink.task(7, 1, "b"))
    sink.query_id = "another"
    sink.commit(sink.task(0, 0, "c"), sink.task(0, 1, "d"))
    assert sink.seen() == ["a", "b", "c", "d"]


def test_a_decision_of_many_tasks_is_kept_in_parts(sink):
    place = TaskPlace(0, "0b0b0b0b-1c1c-2d2d-3e3e-4f4f4f4f4f4f", 3)
    share = sink.task(0, 0, "a")
    many = {task: share.prepared._replace(transactional_id=f"tx-{sink.topic}-{task}") for task in range(200)}
    sink.ledger.decide(place, sink.topic, many)
    assert sink.ledger.decision(place) == many
    assert sink.ledger.decision(TaskPlace(0, place.query_id, 4)) == {}
    sink.abort(share)


def test_a_write_that_is_no_stream_is_one_whole(broker):
    sink = Sink(broker, f"out{next(_numbers)}", query_id=None)
    shares = sink.task(0, 0, "a"), sink.task(0, 1, "b")
    assert sink.seen() == []
    sink.commit(*shares)
    sink.abort(sink.task(0, 0, "c"))
    sink.commit(sink.task(0, 0, "a"))
    sink.commit()
    assert sink.seen() == ["a", "a", "b"]
