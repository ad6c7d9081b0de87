"""Exactly once: the tests call tasks and driver in every order that a crash can cause."""

from __future__ import annotations

from itertools import count

import pyarrow as pa
import pytest

from headrace import Admin, Consumer, TopicPartition
from headrace.client.transactions.prepared import PreparedTransaction, TransactionLost
from headrace.pipeline.spark.sink import exactly_once
from headrace.pipeline.spark.sink.commit_ledger import CommitLedger, MicroBatch
from headrace.pipeline.spark.sink.exactly_once import TaskResult
from headrace.pipeline.spark.sink.options import SinkOptions
from headrace.pipeline.spark.sink.writers import send_rows

_numbers = count()


@pytest.fixture(scope="module")
def broker(kafka):
    return kafka


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

    def task(self, batch_id: int, task: int, *values: str) -> TaskResult:
        rows = [pa.RecordBatch.from_pydict({"value": pa.array(values, "string")})]
        batch = None if self.query_id is None else MicroBatch(self.query_id, batch_id)

        def send(producer, its_rows, begin) -> int:
            return send_rows(producer, self.topic, its_rows, before_first=begin)

        _, share = exactly_once.write_task(self.options, task, batch, iter(rows), send)
        return share

    def decide(self, *shares: TaskResult) -> None:
        """As the driver does before it ends the first transaction."""
        with CommitLedger(self.options) as ledger:
            ledger.decide(shares[0].batch, self.topic, {one.task: one.prepared for one in shares})

    def end(self, share: TaskResult) -> None:
        with CommitLedger(self.options) as ledger:
            ledger.end([share.prepared], is_commit=True)

    def commit(self, *shares: TaskResult) -> None:
        exactly_once.commit(self.options, list(shares))

    def abort(self, *shares: TaskResult) -> None:
        exactly_once.abort(self.options, list(shares))

    def seen(self, *, is_open: bool = False) -> list[str]:
        """By a reader of what is committed.

        :param is_open: whether there is a transaction whose end is not to be waited for; Kafka answers that one has
            ended before readers see it.
        """
        place, found = TopicPartition(self.topic, 0), []
        with (
            Admin(bootstrap_servers=self.servers) as admin,
            Consumer(
                bootstrap_servers=self.servers, isolation_level="read_committed", auto_offset_reset="earliest"
            ) as consumer,
        ):
            consumer.assign([place])
            end = consumer.end_offsets(place)[place]
            while not is_open and end < admin.list_offsets({place: "latest"}).value(place).offset:
                end = consumer.end_offsets(place)[place]
            while consumer.position(place) < end:
                found += [record.value.decode() for record in consumer.poll(100)]
        return sorted(found)


def test_what_tasks_wrote_is_seen_when_the_driver_has_committed(sink):
    shares = sink.task(0, 0, "a", "b"), sink.task(0, 1, "c")
    assert sink.seen(is_open=True) == []
    sink.commit(*shares)
    assert sink.seen() == ["a", "b", "c"]
    sink.commit(sink.task(1, 0, "d"), sink.task(1, 1, "e"))
    assert sink.seen() == ["a", "b", "c", "d", "e"]


def test_a_batch_that_was_committed_is_not_written_again(sink):
    sink.commit(sink.task(0, 0, "a"), sink.task(0, 1, "b"))
    replayed = sink.task(0, 0, "a"), sink.task(0, 1, "b")
    assert all(one.was_written_before and one.prepared is None for one in replayed)
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
    sink.decide(first, second)
    sink.end(first)
    # The driver dies. Even with its rows elsewhere the replay changes nothing.
    replayed = sink.task(0, 0, "b"), sink.task(0, 1, "a")
    assert all(one.was_written_before for one in replayed)
    sink.commit(*replayed)
    assert sink.seen() == ["a", "b"]


def test_the_driver_finishes_what_no_task_of_the_replay_asked_for(sink):
    shares = [sink.task(0, task, "abc"[task]) for task in range(3)]
    sink.decide(*shares)
    sink.commit(sink.task(0, 0, "a", "b", "c"))
    assert sink.seen() == ["a", "b", "c"]


def test_what_timed_out_after_the_decision_is_written_again(sink):
    first, second = sink.task(0, 0, "a"), sink.task(0, 1, "b")
    sink.decide(first, second)
    sink.end(first)
    with Admin(bootstrap_servers=sink.servers) as admin:  # as the coordinator does when the time is up
        admin.fence_producers([second.prepared.transactional_id]).all()
    with pytest.raises(TransactionLost):
        sink.end(second)
    replayed = sink.task(0, 0, "a"), sink.task(0, 1, "b")
    assert [one.was_written_before for one in replayed] == [True, False]
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
    sink.decide(*shares)
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
    batch = MicroBatch("0b0b0b0b-1c1c-2d2d-3e3e-4f4f4f4f4f4f", 3)
    with CommitLedger(sink.options) as ledger:
        many = {task: PreparedTransaction(ledger.transactional_id(task), 123_456, 7, True) for task in range(200)}
        ledger.decide(batch, sink.topic, many)
        assert ledger.decision(batch) == many
        assert ledger.decision(batch._replace(batch_id=4)) == {}
        assert ledger.decision(batch._replace(query_id="another")) == {}


def test_rows_that_moved_to_a_task_of_which_nothing_was_decided_are_not_written(sink):
    shares = sink.task(0, 0, "a"), sink.task(0, 1, "b")
    sink.decide(*shares)
    moved = sink.task(0, 5, "a", "b")
    assert moved.was_written_before
    sink.commit(sink.task(0, 0), sink.task(0, 1), moved)
    assert sink.seen() == ["a", "b"]


def test_a_second_crash_within_the_replay_changes_nothing(sink):
    shares = [sink.task(0, task, "abc"[task]) for task in range(3)]
    sink.decide(*shares)
    sink.end(shares[0])
    with Admin(bootstrap_servers=sink.servers) as admin:
        admin.fence_producers([one.prepared.transactional_id for one in shares[1:]]).all()
    replayed = [sink.task(0, task, "abc"[task]) for task in range(3)]
    assert [one.was_written_before for one in replayed] == [True, False, False]
    sink.decide(*replayed[1:])
    sink.end(replayed[1])
    again = [sink.task(0, task, "abc"[task]) for task in range(3)]
    assert all(one.was_written_before for one in again)
    sink.commit(*again)
    assert sink.seen() == ["a", "b", "c"]


def test_a_task_that_fails_leaves_nothing_open(sink):
    def send(producer, rows, begin) -> int:
        send_rows(producer, sink.topic, rows, before_first=begin)
        raise ValueError("a bad row")

    rows = [pa.RecordBatch.from_pydict({"value": ["a"]})]
    with pytest.raises(ValueError, match="a bad row"):
        exactly_once.write_task(sink.options, 0, MicroBatch("query", 0), iter(rows), send)
    with Admin(bootstrap_servers=sink.servers) as admin:
        assert admin.describe_transaction(f"tx-{sink.topic}-0").state in ("CompleteAbort", "PrepareAbort")


def test_a_write_that_is_no_stream_is_one_whole(broker):
    sink = Sink(broker, f"out{next(_numbers)}", query_id=None)
    shares = sink.task(0, 0, "a"), sink.task(0, 1, "b")
    assert sink.seen(is_open=True) == []
    sink.commit(*shares)
    sink.abort(sink.task(0, 0, "c"))
    sink.commit(sink.task(0, 0, "a"))
    sink.commit()
    assert sink.seen() == ["a", "a", "b"]
