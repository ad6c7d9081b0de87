"""Checks the guarantees that a cluster gives, while the cluster runs and after it has recovered.

:class:`InvariantMonitor` checks while the cluster runs. It reports:

- two leaders of one partition in one epoch;
- a high watermark that moves back;
- a replica in the ISR that lacks committed records;
- a consumer that receives records at or above the high watermark.

:func:`check_end` checks the logs after recovery. It reports:

- an acknowledged record that is lost, or stored at another offset;
- a record that is stored twice;
- records of one producer that are out of order;
- replicas that differ;
- a reader that received a record that the log does not have, or that skipped one;
- a ``read_committed`` reader that received an aborted record, or missed a committed one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from headrace.coordination.interface import CoordinationError
from headrace.coordination.paths import partition_state_path
from headrace.coordination.znodes import PartitionState
from headrace.log.lookups import decoded_batches
from headrace.replication.partition import Isolation
from headrace.replication.partition import Partition as Replica
from headrace.replication.replicated_partition import end_offset_of
from headrace.testing.simulator.cluster import SimulatedCluster
from headrace.testing.simulator.history import History, Partition, Write


class InvariantMonitor:
    """Checks all live brokers when it is told to, and adds violations to the history."""

    def __init__(self, cluster: SimulatedCluster, history: History, partitions: Iterable[Partition]) -> None:
        self._cluster = cluster
        self._history = history
        self._partitions = list(partitions)
        self._leaders: dict[tuple[Partition, int], int] = {}
        #: By partition, broker and the log object: a restarted broker has a new one.
        self._high_watermarks: dict[tuple[Partition, int, int], int] = {}
        self._reported: set[str] = set()

    def check_brokers(self) -> None:
        for partition in self._partitions:
            isr = self._written_isr(partition)
            for broker_id, broker in self._cluster.brokers.items():
                replica = broker.partitions.get(*partition)
                if replica is None:
                    continue
                self._check_high_watermark(partition, broker_id, replica)
                if replica.is_leader:
                    self._check_leader(partition, broker_id, replica, isr)

    def _written_isr(self, partition: Partition) -> PartitionState | None:
        with suppress(CoordinationError):
            return PartitionState.from_json(self._cluster.tree.tree.get(partition_state_path(*partition))[0])
        return None

    def _check_high_watermark(self, partition: Partition, broker_id: int, replica: Replica) -> None:
        key = (partition, broker_id, id(replica.log))
        before = self._high_watermarks.get(key, 0)
        now = replica.high_watermark
        if now < before:
            self._report(
                f"the high watermark of {partition} on {broker_id} went from {before} to {replica.high_watermark}"
            )
        self._high_watermarks[key] = now

    def _check_leader(
        self, partition: Partition, broker_id: int, replica: Replica, state: PartitionState | None
    ) -> None:
        other = self._leaders.setdefault((partition, replica.leader_epoch), broker_id)
        if other != broker_id:
            self._report(f"both {other} and {broker_id} lead {partition} in epoch {replica.leader_epoch}")
        if state is None or (state.leader, state.leader_epoch) != (broker_id, replica.leader_epoch):
            return  # another broker leads, and this one has not been told yet
        for member in state.isr:
            broker = self._cluster.brokers.get(member)
            theirs = None if broker is None else broker.partitions.get(*partition)
            if theirs is not None and theirs.log.next_offset < replica.high_watermark:
                self._report(
                    f"{partition} is committed up to {replica.high_watermark}, but the log of {member} in the ISR ends "
                    f"at {theirs.log.next_offset}"
                )

    def check_fetched(self, broker_name: str, isolation: int, answer: Mapping[str, Any]) -> None:
        """Checks a Fetch response to a consumer at the moment when a leader or a preferred replica sends it."""
        broker = next((one for one in self._cluster.brokers.values() if one.node.name == broker_name), None)
        if broker is None:
            return  # the broker is stopping: its high watermark cannot be read any more
        for topic in answer["responses"]:
            named = topic["topic"]
            found = None if isinstance(named, str) else broker.metadata.get_by_id(named)
            name = named if found is None else found.name
            for told in topic["partitions"]:
                partition = (name, told["partition_index"])
                replica = broker.partitions.get(*partition)
                end_offset = end_offset_of(memoryview(told["records"].read())) if len(told["records"]) else None
                if replica is None or end_offset is None:
                    continue
                if end_offset > replica.high_watermark:
                    self._report(
                        f"{broker_name} sends a consumer {partition} up to {end_offset}, but its high watermark is "
                        f"{replica.high_watermark}"
                    )
                elif isolation == Isolation.READ_COMMITTED and end_offset > replica.log.last_stable_offset:
                    self._report(
                        f"{broker_name} sends a read_committed consumer {partition} up to {end_offset}, but its last "
                        f"stable offset is {replica.log.last_stable_offset}"
                    )

    def _report(self, fault: str) -> None:
        if fault not in self._reported:
            self._reported.add(fault)
            self._history.faults.append(f"{self._cluster.loop.time():.3f} s: {fault}")


def read_log(replica: Replica) -> tuple[dict[int, Write], dict[int, bool]]:
    """Reads a replica up to its high watermark: the writes by offset, and whether each is committed, by offset.

    Records outside of transactions count as committed.
    """
    log = replica.log
    writes: dict[int, Write] = {}
    fates: dict[int, bool] = {}
    open_: dict[int, list[int]] = defaultdict(list)
    for header, records in decoded_batches(log, lambda: log.high_watermark):
        if header.is_control:
            is_commit = records[0].key is not None and int.from_bytes(bytes(records[0].key)[2:4], "big") == 1
            for one in open_.pop(header.producer_id, ()):
                fates[one] = is_commit
            continue
        for record in records:
            assert record.value is not None
            writes[record.offset] = Write.from_bytes(bytes(record.value))
            if header.is_transactional:
                open_[header.producer_id].append(record.offset)
            else:
                fates[record.offset] = True
    return writes, fates


def check_end(history: History, replicas: Mapping[Partition, Mapping[int, Replica]]) -> list[str]:
    """All violations. The cluster must have recovered: every replica is in sync, every transaction has ended."""
    faults = list(history.faults)
    logs: dict[Partition, tuple[dict[int, Write], dict[int, bool]]] = {}
    for partition, by_broker in replicas.items():
        contents = {broker: read_log(replica) for broker, replica in by_broker.items()}
        first = next(iter(contents))
        logs[partition] = contents[first]
        faults += [
            f"{partition} differs between {first} and {broker}: {_first_difference(contents[first][0], content[0])}"
            for broker, content in contents.items()
            if content != contents[first]
        ]
        faults += _check_order(partition, *logs[partition])
    for partition, offset, write in history.acknowledged:
        found = logs[partition][0].get(offset)
        if found != write:
            faults.append(f"{write} was acknowledged at offset {offset} of {partition}, but the log has {found} there")
    faults += _check_readers(history, logs)
    faults += _check_transactions(history, logs)
    return faults


def _first_difference(ours: Mapping[int, Write], theirs: Mapping[int, Write]) -> str:
    for offset in sorted({*ours, *theirs}):
        if ours.get(offset) != theirs.get(offset):
            return f"at offset {offset}: {ours.get(offset)} and {theirs.get(offset)}"
    return "in which transactions are committed"


def _check_order(partition: Partition, writes: Mapping[int, Write], fates: Mapping[int, bool]) -> list[str]:
    faults = []
    last: dict[str, int] = {}
    committed = [writes[offset] for offset in sorted(writes) if fates.get(offset, False)]
    for write, times in Counter(committed).items():
        if times > 1:
            faults.append(f"{write} is stored {times} times in {partition}")
    for write in dict.fromkeys(committed):
        if write.number < last.get(write.producer, -1):
            faults.append(f"{write} is stored after number {last[write.producer]} of its producer in {partition}")
        last[write.producer] = write.number
    return faults


def _check_readers(
    history: History, logs: Mapping[Partition, tuple[Mapping[int, Write], Mapping[int, bool]]]
) -> list[str]:
    """Checks ``read_committed`` readers: each committed record once, in order, at its offset; no aborted record."""
    faults = []
    for (reader, partition), seen in history.consumed.items():
        writes, fates = logs[partition]
        visible = [offset for offset in sorted(writes) if fates.get(offset, False)]
        for offset, write in seen:
            if writes.get(offset) != write:
                there = writes.get(offset)
                faults.append(f"{reader} read {write} at offset {offset} of {partition}, but the log has {there} there")
            elif not fates.get(offset, False):
                faults.append(f"{reader} read {write} at offset {offset} of {partition}, which was aborted")
        offsets = [offset for offset, _ in seen]
        if offsets != visible[: len(offsets)] and not faults:
            faults.append(f"{reader} read {partition} out of order, or skipped records")
    return faults


def _check_transactions(
    history: History, logs: Mapping[Partition, tuple[Mapping[int, Write], Mapping[int, bool]]]
) -> list[str]:
    committed = {
        partition: {writes[offset] for offset in writes if fates.get(offset, False)}
        for partition, (writes, fates) in logs.items()
    }
    faults = []
    for transaction in history.transactions:
        there = [write in committed[partition] for partition, write in transaction.writes]
        if transaction.is_committed and not all(there):
            faults.append(f"a committed transaction has only {sum(there)} of {len(there)} records: {transaction}")
        elif transaction.is_committed is False and any(there):
            faults.append(f"an aborted transaction has {sum(there)} committed records: {transaction}")
        elif any(there) and not all(there):
            faults.append(f"a transaction is committed in part, {sum(there)} of {len(there)} records: {transaction}")
    return faults
