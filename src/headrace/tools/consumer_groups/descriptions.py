"""Makes the output of ``headrace consumer-groups --describe``: lag per partition, members, state. No I/O.

The columns are those of Kafka's tool. A column has a minimum width; longer names make the column wider. The last column
is padded only where Kafka's tool pads it. ``-`` means that a value is unknown or missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from headrace.client.admin.types import GroupDescription, GroupMember
from headrace.client.types import OffsetAndMetadata, TopicPartition
from headrace.tools.shared.commands import Table

_REBALANCING = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})


class Column(NamedTuple):
    heading: str
    least_width: int = 15
    is_last: bool = False


class PartitionRow(NamedTuple):
    """A partition that has a committed offset, or that is assigned to a member."""

    partition: TopicPartition
    committed: OffsetAndMetadata | None
    log_end_offset: int | None
    member: GroupMember | None

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.log_end_offset is None:
            return None
        return self.log_end_offset - self.committed.offset

    @property
    def leader_epoch(self) -> int | None:
        """The epoch of the last record that was read, if the consumer has committed the epoch."""
        if self.committed is None or self.committed.leader_epoch < 0:
            return None
        return self.committed.leader_epoch


class Text(NamedTuple):
    """The text of a description."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[object]]

    def lines(self) -> Iterator[str]:
        """The lines of Kafka's tool: an empty line first."""
        yield ""
        cells = [[column.heading for column in self.columns], *([_cell(value) for value in row] for row in self.rows)]
        widths = [
            max(column.least_width, *(len(row[at]) for row in cells)) for at, column in enumerate(self.columns)
        ]  # fmt: skip
        for row in cells:
            parts = zip(row, widths, self.columns, strict=True)
            yield " ".join(cell if column.is_last else cell.ljust(width) for cell, width, column in parts)

    def table(self) -> Table:
        return Table([column.heading for column in self.columns], self.rows)


def member_state(group: GroupDescription) -> str | None:
    """A warning to be printed before the description."""
    if group.state == "Empty":
        return f"Consumer group '{group.group_id}' has no active members."
    if group.state in _REBALANCING:
        return f"Warning: Consumer group '{group.group_id}' is rebalancing."
    return None


# ------------------------------------------------------------------------------------------------------------ offsets


def partition_rows(
    group: GroupDescription,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    log_end_offsets: Mapping[TopicPartition, int],
) -> list[PartitionRow]:
    """The partitions of members (the member with most partitions first), then the unassigned partitions."""
    members = sorted(group.members, key=lambda member: (-len(member.assignment), member.member_id))
    owned = [(partition, member) for member in members for partition in sorted(member.assignment)]
    orphans = sorted(committed.keys() - {partition for partition, _ in owned})
    rows = [PartitionRow(at, committed.get(at), log_end_offsets.get(at), member) for at, member in owned]
    return rows + [PartitionRow(at, committed[at], log_end_offsets.get(at), None) for at in orphans]


def partitions_of(
    group: GroupDescription, committed: Mapping[TopicPartition, OffsetAndMetadata]
) -> set[TopicPartition]:
    """The partitions of which :func:`partition_rows` makes rows."""
    return committed.keys() | {partition for member in group.members for partition in member.assignment}


def offsets_text(group_id: str, rows: Iterable[PartitionRow], *, verbose: bool) -> Text:
    columns = [Column("GROUP"), Column("TOPIC"), Column("PARTITION", 10)]
    columns += [Column("LEADER-EPOCH")] if verbose else []
    columns += [Column("CURRENT-OFFSET"), Column("LOG-END-OFFSET"), Column("LAG")]
    columns += [Column("CONSUMER-ID"), Column("HOST"), Column("CLIENT-ID", is_last=True)]
    return Text(columns, [_offsets_cells(group_id, row, verbose) for row in rows])


def _offsets_cells(group_id: str, row: PartitionRow, verbose: bool) -> list[object]:
    committed, member = row.committed, row.member
    whose = (None, None, None) if member is None else (member.member_id, member.host, member.client_id)
    offset = None if committed is None else committed.offset
    return [
        group_id,
        *row.partition,
        *([row.leader_epoch] if verbose else []),
        offset,
        row.log_end_offset,
        row.lag,
        *whose,
    ]


def offsets_value(group: GroupDescription, rows: Iterable[PartitionRow]) -> dict[str, object]:
    return {
        "group": group.group_id,
        "state": group.state,
        "offsets": [
            {
                "topic": row.partition.topic,
                "partition": row.partition.partition,
                "leaderEpoch": row.leader_epoch,
                "currentOffset": None if row.committed is None else row.committed.offset,
                "logEndOffset": row.log_end_offset,
                "lag": row.lag,
                "consumerId": None if row.member is None else row.member.member_id,
                "host": None if row.member is None else row.member.host,
                "clientId": None if row.member is None else row.member.client_id,
            }
            for row in rows
        ],
    }


# ------------------------------------------------------------------------------------------------------------ members


def members_text(group: GroupDescription, *, verbose: bool) -> Text:
    with_instances = any(member.instance_id for member in group.members)
    with_upgrades = any(member.is_classic for member in group.members)
    columns = [Column("GROUP"), Column("CONSUMER-ID")]
    columns += [Column("GROUP-INSTANCE-ID", 17)] if with_instances else []
    columns += [Column("HOST"), Column("CLIENT-ID"), Column("#PARTITIONS", 15 if verbose else 16)]
    if verbose:
        columns += [Column("CURRENT-EPOCH"), Column("CURRENT-ASSIGNMENT", 20)]
        columns += [Column("TARGET-EPOCH"), Column("TARGET-ASSIGNMENT", 20)]
        columns += [Column("UPGRADED", is_last=True)] if with_upgrades else []
    rows = []
    for member in sorted(group.members, key=lambda member: (-len(member.assignment), member.member_id)):
        row: list[object] = [group.group_id, member.member_id]
        row += [member.instance_id] if with_instances else []
        row += [member.host, member.client_id, len(member.assignment)]
        if verbose:
            row += [member.member_epoch, assignment_text(member.assignment)]
            row += [group.assignment_epoch, assignment_text(member.target_assignment or ())]
            row += [str(not member.is_classic).lower()] if with_upgrades else []
        rows.append(row)
    return Text(columns, rows)


def assignment_text(partitions: Iterable[TopicPartition]) -> str | None:
    """``orders:0,1;payments:0``."""
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return ";".join(f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in topics.items()) or None


def members_value(group: GroupDescription) -> dict[str, object]:
    return {
        "group": group.group_id,
        "state": group.state,
        "members": [
            {
                "consumerId": member.member_id,
                "groupInstanceId": member.instance_id,
                "host": member.host,
                "clientId": member.client_id,
                "epoch": member.member_epoch,
                "targetEpoch": group.assignment_epoch,
                "assignment": [{"topic": at.topic, "partition": at.partition} for at in member.assignment],
                "targetAssignment": None
                if member.target_assignment is None
                else [{"topic": at.topic, "partition": at.partition} for at in member.target_assignment],
                "upgraded": None if member.is_classic is None else not member.is_classic,
            }
            for member in group.members
        ],
    }


# -------------------------------------------------------------------------------------------------------------- state


def state_text(group: GroupDescription, *, verbose: bool) -> Text:
    columns = [Column("GROUP"), Column("COORDINATOR (ID)", 25), Column("ASSIGNMENT-STRATEGY", 20), Column("STATE", 20)]
    columns += [Column("GROUP-EPOCH"), Column("TARGET-ASSIGNMENT-EPOCH", 25)] if verbose else []
    columns += [Column("#MEMBERS", is_last=True)]
    node = group.coordinator
    row: list[object] = [group.group_id, f"{node.host}:{node.port}  ({node.id})", group.assignor or None, group.state]
    row += [group.group_epoch, group.assignment_epoch] if verbose else []
    return Text(columns, [[*row, len(group.members)]])


def state_value(group: GroupDescription) -> dict[str, object]:
    node = group.coordinator
    return {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "coordinator": {"id": node.id, "host": node.host, "port": node.port},
        "assignmentStrategy": group.assignor or None,
        "groupEpoch": group.group_epoch,
        "targetAssignmentEpoch": group.assignment_epoch,
        "members": len(group.members),
    }


def _cell(value: object) -> str:
    return "-" if value is None else str(value)
