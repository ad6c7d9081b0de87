"""The transaction coordinator: epochs, ends of transactions, timeouts, and the state after a restart."""

import pytest
from transaction_coordinator_harness import STATE, T0, T1, TIMEOUT_MS

from headrace.protocol.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    InvalidProducerIdMapping,
    InvalidTxnState,
    NotCoordinator,
    ProducerFenced,
    StorageError,
    TransactionalIdNotFound,
)
from headrace.testing.faulty_disk import FaultyDisk
from headrace.transactions.coordinator import ProducerIdentity
from headrace.transactions.metadata import LAST_EPOCH, TransactionMetadata
from headrace.transactions.shard import RETRY_MS
from headrace.transactions.states import TransactionState


def put(harness, state, **fields):
    """Writes an id in a given state to the log."""
    values = {"producer_id": 7, "producer_epoch": 0, "timeout_ms": TIMEOUT_MS, "updated_ms": harness.clock.wall_ms()}
    metadata = TransactionMetadata("x", state=state, **{**values, **fields})
    harness.journal(STATE).write([metadata.record()])
    harness.restart()
    return metadata


class Withheld:
    """A marker sender that holds markers back until the test releases them."""

    def __init__(self, harness):
        self.sent = []
        self.harness = harness
        harness.markers.send = self.send

    def send(self, marker, partitions, on_sent):
        self.sent.append((marker, frozenset(partitions), on_sent))

    def let_go(self):
        marker, partitions, on_sent = self.sent.pop(0)
        for topic, index in partitions:
            self.harness.markers.write(topic, index, marker)
        on_sent(frozenset())


# -- epochs


def test_the_epochs_of_an_id_are_used_up_and_it_gets_another_producer_id(harness):
    put(harness, TransactionState.EMPTY, producer_epoch=LAST_EPOCH - 1)
    assert harness.start() == (7, LAST_EPOCH)
    last = harness.start()
    assert last.producer_id != 7
    assert last.producer_epoch == 0
    with pytest.raises(InvalidProducerIdMapping):
        harness.add(ProducerIdentity(7, LAST_EPOCH), T0)


def test_who_asked_for_the_next_epoch_and_lost_the_answer_gets_it_again_even_with_another_id(harness):
    put(harness, TransactionState.COMPLETE_COMMIT, producer_epoch=LAST_EPOCH)
    known = ProducerIdentity(7, LAST_EPOCH)
    fresh = harness.start(known=known)
    assert fresh == (harness.next_producer_id, 0)
    assert harness.start(known=known) == fresh


@pytest.mark.parametrize("epoch", [LAST_EPOCH - 1, LAST_EPOCH])
def test_an_abort_that_fences_may_use_the_last_epoch(harness, epoch):
    put(
        harness,
        TransactionState.ONGOING,
        producer_epoch=epoch,
        started_ms=harness.clock.wall_ms(),
        partitions=frozenset({T0}),
    )
    assert harness.start() == (harness.next_producer_id, 0)
    assert harness.coordinator.describe("x").previous_producer_id == 7


def test_version_2_uses_up_epochs_by_ending_transactions(harness):
    put(harness, TransactionState.EMPTY, producer_epoch=LAST_EPOCH - 1)
    producer = ProducerIdentity(7, LAST_EPOCH - 1)
    harness.add(producer, T0, version=2)
    producer = harness.end(producer, version=2)
    assert producer == (7, LAST_EPOCH)
    harness.add(producer, T0, version=2)
    harness.write(producer, T0, b"1")
    following = harness.end(producer, version=2)
    assert following == (harness.next_producer_id, 0)
    assert harness.committed(T0) == [b"1"]
    assert harness.end(producer, version=2) == following  # said again
    with pytest.raises(InvalidTxnState):
        harness.end(producer, commit=False, version=2)
    harness.add(following, T0, version=2)


def test_a_newer_producer_is_not_aborted_by_an_older_one_that_starts_anew(harness):
    old = harness.start()
    new = harness.start()
    harness.add(new, T0)
    with pytest.raises(ProducerFenced):
        harness.start(known=old)
    assert harness.state() is TransactionState.ONGOING


def test_a_producer_that_starts_anew_in_its_own_transaction(harness):
    producer = harness.start()
    harness.add(producer, T0)
    assert harness.start(known=producer) == (producer.producer_id, 2)
    assert harness.state() is TransactionState.EMPTY


# -- while a transaction is being ended


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_nothing_begins_until_all_markers_are_written(harness, version, commit):
    withheld = Withheld(harness)
    producer = harness.start()
    harness.add(producer, T0, T1, version=version)
    harness.write(producer, T0, b"1")
    following = harness.end(producer, commit=commit, version=version)
    assert harness.state() is (TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT)
    for refused in (
        lambda: harness.add(following, T0, version=version),
        lambda: harness.coordinator.missing_partitions("x", following, [T0]),
        lambda: harness.start(),
        lambda: harness.end(producer, commit=commit, version=version),
    ):
        with pytest.raises(ConcurrentTransactions):
            refused()
    with pytest.raises(InvalidTxnState):
        harness.end(producer, commit=not commit, version=version)
    withheld.let_go()
    assert harness.state() is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT)
    harness.add(following, T0, version=version)


def test_a_producer_that_starts_waits_for_the_abort(harness):
    withheld = Withheld(harness)
    harness.add(harness.start(), T0)
    with pytest.raises(ConcurrentTransactions):
        harness.start()
    assert harness.state() is TransactionState.PREPARE_ABORT
    withheld.let_go()
    assert harness.start().producer_epoch == 2


def test_a_marker_that_could_not_be_written_is_tried_again(tmp_path, harness):
    disk = FaultyDisk()
    harness.restart(disk)
    producer = harness.start()
    harness.add(producer, T0, T1)
    for partition in (T0, T1):
        harness.write(producer, partition, b"1")
    lost = harness.partitions.get(*T1)
    harness.partitions.mark_offline(*T1)
    harness.end(producer)
    assert harness.state() is TransactionState.PREPARE_COMMIT
    assert (harness.committed(T0), len(harness.timer)) == ([b"1"], 1)
    end_of_t0 = harness.partitions.get(*T0).log.next_offset
    harness.pass_ms(RETRY_MS)
    assert harness.state() is TransactionState.PREPARE_COMMIT
    harness.partitions.add(lost)
    harness.partitions._offline.clear()
    harness.pass_ms(RETRY_MS)
    assert harness.state() is TransactionState.COMPLETE_COMMIT
    assert harness.committed(T1) == [b"1"]
    assert harness.partitions.get(*T0).log.next_offset == end_of_t0
    assert len(harness.timer) == 0


def test_a_topic_that_was_deleted_needs_no_marker(harness):
    producer = harness.start()
    harness.add(producer, T0, T1)
    harness.partitions.remove(*T1)
    harness.end(producer)
    assert harness.state() is TransactionState.COMPLETE_COMMIT


def test_what_cannot_be_written_changes_nothing(harness, monkeypatch):
    producer = harness.start()
    harness.add(producer, T0)
    journal = harness.coordinator.shard_for("x")._journal

    def fail(records):
        raise StorageError("full")

    with monkeypatch.context() as patch:
        patch.setattr(journal, "write", fail)
        with pytest.raises(StorageError):
            harness.end(producer)
        with pytest.raises(StorageError):
            harness.add(producer, T1)
        harness.pass_ms(TIMEOUT_MS)
        assert harness.state() is TransactionState.ONGOING
    harness.pass_ms(RETRY_MS)
    assert harness.state() is TransactionState.COMPLETE_ABORT


def test_the_end_that_could_not_be_noted_is_noted_later(harness, monkeypatch):
    producer = harness.start()
    harness.add(producer, T0)
    journal = harness.coordinator.shard_for("x")._journal
    write = journal.write

    def fail_second(records):
        monkeypatch.setattr(journal, "write", fail)
        return write(records)

    def fail(records):
        monkeypatch.setattr(journal, "write", write)
        raise StorageError("full")

    monkeypatch.setattr(journal, "write", fail_second)
    harness.end(producer)
    assert harness.state() is TransactionState.PREPARE_COMMIT
    harness.pass_ms(RETRY_MS)
    assert harness.state() is TransactionState.COMPLETE_COMMIT


# -- time


@pytest.mark.parametrize("version", [0, 2])
def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_shut_out(harness, version):
    producer = harness.start()
    harness.add(producer, T0, version=version)
    harness.write(producer, T0, b"1")
    harness.pass_ms(TIMEOUT_MS - 1)
    harness.add(producer, T1, version=version)  # does not make it younger
    assert harness.state() is TransactionState.ONGOING
    harness.pass_ms(1)
    assert harness.state() is TransactionState.COMPLETE_ABORT
    assert harness.identity() == (producer.producer_id, producer.producer_epoch + 1)
    assert harness.committed(T0) == []
    assert harness.is_all_stable()
    with pytest.raises(ProducerFenced):
        harness.add(producer, T0, version=version)
    with pytest.raises(ProducerFenced if version == 0 else InvalidTxnState):
        harness.end(producer, version=version)


def test_a_transaction_that_ended_has_no_timeout_any_more(harness):
    producer = harness.start()
    harness.add(producer, T0)
    assert len(harness.timer) == 1
    harness.end(producer)
    assert len(harness.timer) == 0


def test_the_timeout_counts_from_the_begin_even_over_a_restart(harness):
    producer = harness.start()
    harness.add(producer, T0)
    harness.pass_ms(TIMEOUT_MS - 10)
    harness.restart()
    harness.pass_ms(9)
    assert harness.state() is TransactionState.ONGOING
    harness.pass_ms(1)
    assert harness.state() is TransactionState.COMPLETE_ABORT


def test_ids_expire(harness):
    idle, busy = harness.start("idle"), harness.start("busy")
    harness.clock.advance(1000)
    harness.add(busy, T0, name="busy")
    harness.start("young")
    assert harness.coordinator.expire(1001) == 0
    assert harness.coordinator.expire(1000) == 1
    with pytest.raises(TransactionalIdNotFound):
        harness.state("idle")
    harness.restart()
    assert {each.transactional_id for each in harness.coordinator.transactions()} == {"busy", "young"}
    assert harness.start("idle").producer_id != idle.producer_id


# -- shards


def test_after_a_restart_all_is_as_it_was(harness):
    producer = harness.start()
    harness.add(producer, T0, version=2)
    harness.write(producer, T0, b"1")
    other = harness.start("other", timeout_ms=5)
    before = list(harness.coordinator.transactions())
    harness.restart()
    assert list(harness.coordinator.transactions()) == before
    harness.end(producer, version=2)
    assert harness.committed(T0) == [b"1"]
    assert harness.start("other").producer_id == other.producer_id


def test_while_it_loads(harness):
    producer = harness.start()
    harness.coordinator.unload(0)
    with pytest.raises(NotCoordinator):
        harness.add(producer, T0)
    loading = harness.coordinator.load(harness.journal(STATE))
    next(loading)
    with pytest.raises(CoordinatorLoadInProgress):
        harness.add(producer, T0)
    with pytest.raises(CoordinatorLoadInProgress):
        list(harness.coordinator.transactions())
    assert list(loading) == []
    harness.add(producer, T0)


def test_unloaded_before_it_was_loaded(harness):
    harness.start()
    harness.coordinator.unload(0)
    loading = harness.coordinator.load(harness.journal(STATE))
    next(loading)
    harness.coordinator.unload(0)
    assert list(loading) == []
    assert not harness.coordinator.has(0)


def test_an_unloaded_shard_does_nothing_more(harness):
    harness.add(harness.start(), T0)
    end = harness.partitions.get(STATE, 0).log.next_offset
    harness.coordinator.unload_all()
    harness.pass_ms(TIMEOUT_MS)
    assert harness.partitions.get(STATE, 0).log.next_offset == end
    assert len(harness.timer) == 0


def test_a_log_that_cannot_be_read_is_not_served(harness, caplog):
    harness.journal(STATE).write([(b"\x00\x00", b"\x00\x01damaged")])
    harness.restart()
    assert "cannot load the transactions of partition 0" in caplog.text
    with pytest.raises(NotCoordinator):
        harness.start()


def test_records_of_newer_brokers_are_passed_over(harness):
    harness.journal(STATE).write([(b"\x00\x63", b"?")])
    harness.restart()
    assert harness.start().producer_epoch == 0
