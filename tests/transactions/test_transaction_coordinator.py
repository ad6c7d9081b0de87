"""The coordinator: epochs, ends, timeouts, and what it finds again after a restart."""

import pytest
from coordinatorbed import STATE, T0, T1, TIMEOUT_MS

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
from headrace.transactions.coordinator import Identity
from headrace.transactions.metadata import LAST_EPOCH, TxnMetadata
from headrace.transactions.shard import RETRY_MS
from headrace.transactions.states import State


def put(bed, state, **fields):
    """Puts an id into a state, as if it had come there."""
    values = {"producer_id": 7, "producer_epoch": 0, "timeout_ms": TIMEOUT_MS, "updated_ms": bed.clock.wall_ms()}
    metadata = TxnMetadata("x", state=state, **{**values, **fields})
    bed.journal(STATE).write([metadata.record()])
    bed.restart()
    return metadata


class Withheld:
    """Markers that do not get through until they are let go."""

    def __init__(self, bed):
        self.sent = []
        self.bed = bed
        bed.markers.send = self.send

    def send(self, marker, partitions, on_sent):
        self.sent.append((marker, frozenset(partitions), on_sent))

    def let_go(self):
        marker, partitions, on_sent = self.sent.pop(0)
        for topic, index in partitions:
            self.bed.markers.write(topic, index, marker)
        on_sent(frozenset())


# -- epochs


def test_the_epochs_of_an_id_are_used_up_and_it_gets_another_producer_id(bed):
    put(bed, State.EMPTY, producer_epoch=LAST_EPOCH - 1)
    assert bed.start() == (7, LAST_EPOCH)
    last = bed.start()
    assert last.producer_id != 7
    assert last.producer_epoch == 0
    with pytest.raises(InvalidProducerIdMapping):
        bed.add(Identity(7, LAST_EPOCH), T0)


def test_who_asked_for_the_next_epoch_and_lost_the_answer_gets_it_again_even_with_another_id(bed):
    put(bed, State.COMPLETE_COMMIT, producer_epoch=LAST_EPOCH)
    known = Identity(7, LAST_EPOCH)
    fresh = bed.start(known=known)
    assert fresh == (bed.next_producer_id, 0)
    assert bed.start(known=known) == fresh


@pytest.mark.parametrize("epoch", [LAST_EPOCH - 1, LAST_EPOCH])
def test_an_abort_over_its_head_may_use_the_last_epoch(bed, epoch):
    put(bed, State.ONGOING, producer_epoch=epoch, started_ms=bed.clock.wall_ms(), partitions=frozenset({T0}))
    assert bed.start() == (bed.next_producer_id, 0)
    assert bed.coordinator.describe("x").previous_producer_id == 7


def test_version_2_uses_up_epochs_by_ending_transactions(bed):
    put(bed, State.EMPTY, producer_epoch=LAST_EPOCH - 1)
    producer = Identity(7, LAST_EPOCH - 1)
    bed.add(producer, T0, version=2)
    producer = bed.end(producer, version=2)
    assert producer == (7, LAST_EPOCH)
    bed.add(producer, T0, version=2)
    bed.write(producer, T0, b"1")
    following = bed.end(producer, version=2)
    assert following == (bed.next_producer_id, 0)
    assert bed.committed(T0) == [b"1"]
    assert bed.end(producer, version=2) == following  # said again
    with pytest.raises(InvalidTxnState):
        bed.end(producer, commit=False, version=2)
    bed.add(following, T0, version=2)


def test_a_newer_producer_is_not_aborted_by_an_older_one_that_starts_anew(bed):
    old = bed.start()
    new = bed.start()
    bed.add(new, T0)
    with pytest.raises(ProducerFenced):
        bed.start(known=old)
    assert bed.state() is State.ONGOING


def test_a_producer_that_starts_anew_in_its_own_transaction(bed):
    producer = bed.start()
    bed.add(producer, T0)
    assert bed.start(known=producer) == (producer.producer_id, 2)
    assert bed.state() is State.EMPTY


# -- while a transaction is being ended


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_nothing_begins_until_all_markers_are_written(bed, version, commit):
    withheld = Withheld(bed)
    producer = bed.start()
    bed.add(producer, T0, T1, version=version)
    bed.write(producer, T0, b"1")
    following = bed.end(producer, commit=commit, version=version)
    assert bed.state() is (State.PREPARE_COMMIT if commit else State.PREPARE_ABORT)
    for refused in (
        lambda: bed.add(following, T0, version=version),
        lambda: bed.coordinator.missing_partitions("x", following, [T0]),
        lambda: bed.start(),
        lambda: bed.end(producer, commit=commit, version=version),
    ):
        with pytest.raises(ConcurrentTransactions):
            refused()
    with pytest.raises(InvalidTxnState):
        bed.end(producer, commit=not commit, version=version)
    withheld.let_go()
    assert bed.state() is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)
    bed.add(following, T0, version=version)


def test_a_producer_that_starts_waits_for_the_abort(bed):
    withheld = Withheld(bed)
    bed.add(bed.start(), T0)
    with pytest.raises(ConcurrentTransactions):
        bed.start()
    assert bed.state() is State.PREPARE_ABORT
    withheld.let_go()
    assert bed.start().producer_epoch == 2


def test_a_marker_that_could_not_be_written_is_tried_again(tmp_path, bed):
    disk = FaultyDisk()
    bed.restart(disk)
    producer = bed.start()
    bed.add(producer, T0, T1)
    for partition in (T0, T1):
        bed.write(producer, partition, b"1")
    lost = bed.partitions.get(*T1)
    bed.partitions.lose(*T1)
    bed.end(producer)
    assert bed.state() is State.PREPARE_COMMIT
    assert (bed.committed(T0), len(bed.timer)) == ([b"1"], 1)
    end_of_t0 = bed.partitions.get(*T0).log.next_offset
    bed.pass_ms(RETRY_MS)
    assert bed.state() is State.PREPARE_COMMIT
    bed.partitions.add(lost)
    bed.partitions._lost.clear()
    bed.pass_ms(RETRY_MS)
    assert bed.state() is State.COMPLETE_COMMIT
    assert bed.committed(T1) == [b"1"]
    assert bed.partitions.get(*T0).log.next_offset == end_of_t0
    assert len(bed.timer) == 0


def test_a_topic_that_was_deleted_needs_no_marker(bed):
    producer = bed.start()
    bed.add(producer, T0, T1)
    bed.partitions.remove(*T1)
    bed.end(producer)
    assert bed.state() is State.COMPLETE_COMMIT


def test_what_cannot_be_written_changes_nothing(bed, monkeypatch):
    producer = bed.start()
    bed.add(producer, T0)
    journal = bed.coordinator.shard_for("x")._journal

    def fail(records):
        raise StorageError("full")

    with monkeypatch.context() as patch:
        patch.setattr(journal, "write", fail)
        with pytest.raises(StorageError):
            bed.end(producer)
        with pytest.raises(StorageError):
            bed.add(producer, T1)
        bed.pass_ms(TIMEOUT_MS)
        assert bed.state() is State.ONGOING
    bed.pass_ms(RETRY_MS)
    assert bed.state() is State.COMPLETE_ABORT


def test_the_end_that_could_not_be_noted_is_noted_later(bed, monkeypatch):
    producer = bed.start()
    bed.add(producer, T0)
    journal = bed.coordinator.shard_for("x")._journal
    write = journal.write

    def fail_second(records):
        monkeypatch.setattr(journal, "write", fail)
        return write(records)

    def fail(records):
        monkeypatch.setattr(journal, "write", write)
        raise StorageError("full")

    monkeypatch.setattr(journal, "write", fail_second)
    bed.end(producer)
    assert bed.state() is State.PREPARE_COMMIT
    bed.pass_ms(RETRY_MS)
    assert bed.state() is State.COMPLETE_COMMIT


# -- time


@pytest.mark.parametrize("version", [0, 2])
def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_shut_out(bed, version):
    producer = bed.start()
    bed.add(producer, T0, version=version)
    bed.write(producer, T0, b"1")
    bed.pass_ms(TIMEOUT_MS - 1)
    bed.add(producer, T1, version=version)  # does not make it younger
    assert bed.state() is State.ONGOING
    bed.pass_ms(1)
    assert bed.state() is State.COMPLETE_ABORT
    assert bed.identity() == (producer.producer_id, producer.producer_epoch + 1)
    assert bed.committed(T0) == []
    assert bed.is_all_stable()
    with pytest.raises(ProducerFenced):
        bed.add(producer, T0, version=version)
    with pytest.raises(ProducerFenced if version == 0 else InvalidTxnState):
        bed.end(producer, version=version)


def test_a_transaction_that_ended_has_no_timeout_any_more(bed):
    producer = bed.start()
    bed.add(producer, T0)
    assert len(bed.timer) == 1
    bed.end(producer)
    assert len(bed.timer) == 0


def test_the_timeout_counts_from_the_begin_even_over_a_restart(bed):
    producer = bed.start()
    bed.add(producer, T0)
    bed.pass_ms(TIMEOUT_MS - 10)
    bed.restart()
    bed.pass_ms(9)
    assert bed.state() is State.ONGOING
    bed.pass_ms(1)
    assert bed.state() is State.COMPLETE_ABORT


def test_ids_expire(bed):
    idle, busy = bed.start("idle"), bed.start("busy")
    bed.clock.advance(1000)
    bed.add(busy, T0, name="busy")
    bed.start("young")
    assert bed.coordinator.expire(1001) == 0
    assert bed.coordinator.expire(1000) == 1
    with pytest.raises(TransactionalIdNotFound):
        bed.state("idle")
    bed.restart()
    assert {each.transactional_id for each in bed.coordinator.transactions()} == {"busy", "young"}
    assert bed.start("idle").producer_id != idle.producer_id


# -- shards


def test_after_a_restart_all_is_as_it_was(bed):
    producer = bed.start()
    bed.add(producer, T0, version=2)
    bed.write(producer, T0, b"1")
    other = bed.start("other", timeout_ms=5)
    before = list(bed.coordinator.transactions())
    bed.restart()
    assert list(bed.coordinator.transactions()) == before
    bed.end(producer, version=2)
    assert bed.committed(T0) == [b"1"]
    assert bed.start("other").producer_id == other.producer_id


def test_while_it_loads(bed):
    producer = bed.start()
    bed.coordinator.unload(0)
    with pytest.raises(NotCoordinator):
        bed.add(producer, T0)
    loading = bed.coordinator.load(bed.journal(STATE))
    next(loading)
    with pytest.raises(CoordinatorLoadInProgress):
        bed.add(producer, T0)
    with pytest.raises(CoordinatorLoadInProgress):
        list(bed.coordinator.transactions())
    assert list(loading) == []
    bed.add(producer, T0)


def test_unloaded_before_it_was_loaded(bed):
    bed.start()
    bed.coordinator.unload(0)
    loading = bed.coordinator.load(bed.journal(STATE))
    next(loading)
    bed.coordinator.unload(0)
    assert list(loading) == []
    assert not bed.coordinator.has(0)


def test_an_unloaded_shard_does_nothing_more(bed):
    bed.add(bed.start(), T0)
    end = bed.partitions.get(STATE, 0).log.next_offset
    bed.coordinator.close()
    bed.pass_ms(TIMEOUT_MS)
    assert bed.partitions.get(STATE, 0).log.next_offset == end
    assert len(bed.timer) == 0


def test_a_log_that_cannot_be_read_is_not_served(bed, caplog):
    bed.journal(STATE).write([(b"\x00\x00", b"\x00\x01damaged")])
    bed.restart()
    assert "cannot be loaded" in caplog.text
    with pytest.raises(NotCoordinator):
        bed.start()


def test_records_of_newer_brokers_are_passed_over(bed):
    bed.journal(STATE).write([(b"\x00\x63", b"?")])
    bed.restart()
    assert bed.start().producer_epoch == 0
