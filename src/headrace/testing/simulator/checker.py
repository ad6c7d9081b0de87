"""What must never happen, whatever is done to a cluster; looked for while it runs, and in what it leaves.

While it runs (:class:`Watch`): two leaders of one epoch; a high watermark that goes back; a replica in the ISR that has
not what is committed; a consumer that is sent what is at or beyond the high watermark. At the end (:func:`check_end`):
an acknowledged record that is lost or is at another place; one that is there twice; a producer's records out of order;
replicas that differ; a reader that saw something else than what is in the log, or skipped; a reader of committed data
that saw what was aborted, or missed what was committed.
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
from headrace.replication.replicated_partition import end_of
from headrace.testing.simulator.cluster import SimulatedCluster
from headrace.testing.simulator.history import History, Partition, Write


class Watch:
    """Looks at all live brokers from time to time; what is wrong goes to the history."""

    def __init__(self, cluster: SimulatedCluster, history: History, partitions: Iterable[Partition]) -> None:
        self._cluster = cluster
        self._history = history
        self._partitions = list(partitions)
        self._leaders: dict[tuple[Partition, int], int] = {}
        #: By partition, broker and the object that is its replica in this life.
        self._high_watermarks: dict[tuple[Partition, int, int], int] = {}
        self._said: set[str] = set()

    def look(self) -> None:
        for partition in self._partitions:
            isr = self._written_isr(partition)
            for broker_id, broker in self._cluster.brokers.items():
                replica = broker.partitions.get(*partition)
                if replica is None:
                    continue
                self._look_at_high_watermark(partition, broker_id, replica)
                if replica.is_leader:
                    self._look_at_leader(partition, broker_id, replica, isr)

    def _written_isr(self, partition: Partition) -> PartitionState | None:
        with suppress(CoordinationError):
            return PartitionState.from_json(self._cluster.tree.tree.get(partition_state_path(*partition))[0])
        return None

    def _look_at_high_watermark(self, partition: Partition, broker_id: int, replica: Replica) -> None:
        key = (partition, broker_id, id(replica.log))
        before = self._high_watermarks.get(key, 0)
        now = replica.high_watermark
        if now < before:
            self._say(
                f"the high watermark of {partition} on {broker_id} went from {before} to {replica.high_watermark}"
            )
        self._high_watermarks[key] = now

    def _look_at_leader(
        self, partition: Partition, broker_id: int, replica: Replica, state: PartitionState | None
    ) -> None:
        other = self._leaders.setdefault((partition, replica.leader_epoch), broker_id)
        if other != broker_id:
            self._say(f"both {other} and {broker_id} lead {partition} in epoch {replica.leader_epoch}")
        if state is None or (state.leader, state.leader_epoch) != (broker_id, replica.leader_epoch):
            return  # it does not know yet that it leads no more
        for member in state.isr:
            broker = self._cluster.brokers.get(member)
            theirs = None if broker is None else broker.partitions.get(*partition)
            if theirs is not None and theirs.log.next_offset < replica.high_watermark:
                self._say(
                    f"{partition} is committed up to {replica.high_watermark}, and {member} of its ISR "
                    f"ends at {theirs.log.next_offset}"
                )

    def look_at_fetched(self, broker_name: str, isolation: int, answer: Mapping[str, Any]) -> None:
        """What a consumer is sent at this moment, by a leader or by the replica that it was told to read from."""
        broker = next((one for one in self._cluster.brokers.values() if one.node.name == broker_name), None)
        if broker is None:
            return  # it stops, and nobody else can say what it knew
        for topic in answer["responses"]:
            named = topic["topic"]
            found = None if isinstance(named, str) else broker.metadata.get_by_id(named)
            name = named if found is None else found.name
            for told in topic["partitions"]:
                partition = (name, told["partition_index"])
                replica = broker.partitions.get(*partition)
                end_offset = end_of(memoryview(told["records"].read())) if len(told["records"]) else None
                if replica is None or end_offset is None:
                    continue
                if end_offset > replica.high_watermark:
                    self._say(
                        f"{broker_name} sends a consumer {partition} up to {end_offset}, and its high watermark is "
                        f"{replica.high_watermark}"
                    )
                elif isolation == Isolation.READ_COMMITTED and end_offset > replica.log.last_stable_offset:
                    self._say(
                        f"{broker_name} sends a reader of committed data {partition} up to {end_offset}, and its last "
                        f"stable offset is {replica.log.last_stable_offset}"
                    )

    def _say(self, fault: str) -> None:
        if fault not in self._said:
            self._said.add(fault)
            self._history.faults.append(f"{self._cluster.loop.time():.3f} s: {fault}")


def read_log(replica: Replica) -> tuple[dict[int, Write], dict[int, bool]]:
    """What a replica has below its high watermark: data by offset, and by offset whether it was committed or aborted
    (records of no transaction count as committed)."""
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
    """All that is wrong, once the cluster is whole again: every replica in sync, every transaction ended."""
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
            faults.append(f"{write} was acknowledged at {offset} of {partition}, where {found} is")
    faults += _check_readers(history, logs)
    faults += _check_transactions(history, logs)
    return faults


def _first_difference(ours: Mapping[int, Write], theirs: Mapping[int, Write]) -> str:
    for offset in sorted({*ours, *theirs}):
        if ours.get(offset) != theirs.get(offset):
            return f"at {offset} {ours.get(offset)} and {theirs.get(offset)}"
    return "in what was committed"


def _check_order(partition: Partition, writes: Mapping[int, Write], fates: Mapping[int, bool]) -> list[str]:
    faults = []
    last: dict[str, int] = {}
    committed = [writes[offset] for offset in sorted(writes) if fates.get(offset, False)]
    for write, times in Counter(committed).items():
        if times > 1:
            faults.append(f"{write} is {times} times in {partition}")
    for write in dict.fromkeys(committed):
        if write.number < last.get(write.producer, -1):
            faults.append(f"{write} comes after {last[write.producer]} of its producer in {partition}")
        last[write.producer] = write.number
    return faults


def _check_readers(
    history: History, logs: Mapping[Partition, tuple[Mapping[int, Write], Mapping[int, bool]]]
) -> list[str]:
    """Readers of committed data: each record at its place, none twice, none left out, nothing that was aborted."""
    faults = []
    for (reader, partition), seen in history.consumed.items():
        writes, fates = logs[partition]
        visible = [offset for offset in sorted(writes) if fates.get(offset, False)]
        for offset, write in seen:
            if writes.get(offset) != write:
                faults.append(f"{reader} saw {write} at {offset} of {partition}, where {writes.get(offset)} is")
            elif not fates.get(offset, False):
                faults.append(f"{reader} saw {write} at {offset} of {partition}, which was aborted")
        offsets = [offset for offset, _ in seen]
        if offsets != visible[: len(offsets)] and not faults:
            faults.append(f"{reader} did not see {partition} in order, or without holes")
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
            faults.append(f"a transaction was committed, but only {sum(there)} of {len(there)}: {transaction}")
        elif transaction.is_committed is False and any(there):
            faults.append(f"a transaction was aborted, and of it {sum(there)} are committed: {transaction}")
        elif any(there) and not all(there):
            faults.append(f"of a transaction only {sum(there)} of {len(there)} are committed: {transaction}")
    return faults
