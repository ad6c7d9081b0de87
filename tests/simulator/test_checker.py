"""That the checker finds each kind of fault, in logs and histories made by hand."""

from __future__ import annotations

from itertools import count

import pytest

from headrace.log.partition_log import Origin
from headrace.protocol.keyed_batch import build_keyed_batch
from headrace.replication.partition import Partition
from headrace.testing.simulator.checker import check_end
from headrace.testing.simulator.history import History, Transaction, Write

_PARTITION = ("events", 0)


@pytest.fixture
def make_replica(open_logs, tmp_path):
    manager = open_logs(tmp_path)
    numbers = count()

    def make(*writes: Write, producer_id: int = -1) -> Partition:
        """A log of these writes; with a producer id, in a transaction that is not ended."""
        partition = Partition(manager.create("events", next(numbers), None), 0)
        for write in writes:
            partition.append(
                build_keyed_batch(
                    [(b"", write.to_bytes())],
                    timestamp_ms=0,
                    producer_id=producer_id,
                    producer_epoch=0 if producer_id >= 0 else -1,
                    is_transactional=producer_id >= 0,
                ),
                Origin.COORDINATOR,
            )
        return partition

    return make


def faults_of(history: History, *replicas: Partition) -> list[str]:
    return check_end(history, {_PARTITION: dict(enumerate(replicas))})


A, B, C = (Write("a", number) for number in range(3))


def test_what_is_good_is_good(make_replica):
    history = History(acknowledged=[(_PARTITION, 0, A), (_PARTITION, 1, B)])
    history.consumed["reader", _PARTITION] = [(0, A), (1, B)]
    assert faults_of(history, make_replica(A, B), make_replica(A, B)) == []


@pytest.mark.parametrize(
    ("writes", "part"),
    [
        ((A,), "was acknowledged at offset 1"),
        ((A, C), "was acknowledged at offset 1"),
        ((A, B, A), "is stored 2 times"),
        ((B, A), "is stored after"),
    ],
)
def test_writes_that_are_lost_doubled_or_out_of_order(make_replica, writes, part):
    history = History(acknowledged=[(_PARTITION, 0, A), (_PARTITION, 1, B)])
    assert any(part in fault for fault in faults_of(history, make_replica(*writes)))


def test_replicas_that_differ(make_replica):
    assert any("differs" in fault for fault in faults_of(History(), make_replica(A, B), make_replica(A, C)))


@pytest.mark.parametrize(
    ("seen", "part"),
    [
        ([(0, B)], "but the log has Write"),
        ([(1, B)], "or skipped records"),
        ([(0, A), (0, A)], "or skipped records"),
        ([(2, C)], "but the log has None there"),
    ],
)
def test_readers_that_saw_something_else(make_replica, seen, part):
    history = History()
    history.consumed["reader", _PARTITION] = seen
    assert any(part in fault for fault in faults_of(history, make_replica(A, B)))


def test_an_open_transaction_is_not_committed(make_replica):
    history = History(transactions=[Transaction([(_PARTITION, A)], is_committed=True)])
    assert any(
        "a committed transaction has only 0" in fault for fault in faults_of(history, make_replica(A, producer_id=5))
    )
    history.consumed["reader", _PARTITION] = [(0, A)]
    assert any("aborted" in fault for fault in faults_of(history, make_replica(A, producer_id=5)))


def test_half_a_transaction(make_replica):
    history = History(transactions=[Transaction([(_PARTITION, A), (_PARTITION, B)])])
    assert any("in part, 1 of 2" in fault for fault in faults_of(history, make_replica(A)))
    history = History(transactions=[Transaction([(_PARTITION, A)], is_committed=False)])
    assert any("an aborted transaction has 1" in fault for fault in faults_of(history, make_replica(A)))


def test_what_was_seen_while_it_ran_counts(make_replica):
    assert faults_of(History(faults=["two leaders"]), make_replica(A)) == ["two leaders"]
