"""The page of a group: its members with their partitions, and per partition how far behind it is, also in time."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.client.admin.types import GroupMember
from headrace.client.errors import HeadraceError
from headrace.client.types import OffsetAndMetadata, TopicPartition
from headrace.console.cluster.group_lags import committed_offsets, lag_of
from headrace.console.cluster.reader import LIST_SECONDS, Ends
from headrace.console.cluster.time_lag import MOST_PARTITIONS, next_times
from headrace.console.fields import Field
from headrace.console.history.series import Series
from headrace.console.pages.page import Page
from headrace.console.pages.part import attempt
from headrace.console.pages.span import SPAN
from headrace.console.problems import Problem
from headrace.console.request import ConsoleRequest

_ROWS = 200
_MOST_LINES = 10
_MOST_NAMED = 50


@dataclass(frozen=True)
class MemberRow:
    """A member. Static members have an instance id; members of the consumer protocol have an epoch.

    :ivar partitions: how many partitions the member has.
    :ivar assignment: the first of them.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    rack: str | None
    epoch: int | None
    topics: tuple[str, ...]
    partitions: int
    assignment: tuple[TopicPartition, ...]


@dataclass(frozen=True)
class OffsetRow:
    """The progress of the group in a partition.

    :ivar committed, end, lag: None if nothing is committed, or the leader does not answer.
    :ivar next_time_ms: the timestamp of the next record to read; None if it was not asked for, or there is none.
    :ivar time_lag_ms: how old that record is; 0 if there is none.
    :ivar member: the client that reads the partition.
    """

    topic: str
    partition: int
    committed: int | None
    metadata: str
    end: int | None
    lag: int | None
    next_time_ms: int | None
    time_lag_ms: int | None
    member: str


@dataclass(frozen=True)
class Group:
    """A group. The partitions are cut; ``page`` chooses the part.

    :ivar epoch, assignment_epoch: None unless the group has the consumer protocol.
    :ivar is_active: whether the group has members, so that its offsets cannot be reset.
    :ivar offsets_problem: why the committed offsets are not known.
    :ivar times_problem: why the time lag is not known.
    :ivar most_times: for how many partitions the time lag is read.
    """

    name: str
    state: str
    type: str
    protocol: str
    assignor: str
    coordinator: str
    epoch: int | None
    assignment_epoch: int | None
    is_active: bool
    members: tuple[MemberRow, ...]
    partitions: tuple[OffsetRow, ...]
    partition_count: int
    page: int
    pages: int
    topics: tuple[str, ...]
    lag: int | None
    offsets_problem: Problem | None
    times_problem: Problem | None
    most_times: int
    lines: tuple[Series, ...]


async def read(request: ConsoleRequest) -> Group:
    """The members of a group with their assignment, and per partition the committed offset, the end and the lag.

    With ``times``, also the timestamp of the next record to read, of the shown partitions that lag most.
    """
    cluster, name = request.cluster, request.text("group")
    group = await cluster.kept(("group", name), LIST_SECONDS, lambda: cluster.admin.describe_group(name))
    committed, offsets_problem = await attempt(committed_offsets(cluster, name), {})
    owners = {at: member for member in group.members for at in member.assignment}
    partitions = sorted(committed.keys() | owners.keys())
    ends, ends_problem = await attempt(cluster.ends(partitions), {})
    pages = max(1, -(-len(partitions) // _ROWS))
    page = min(request.number("page"), pages)
    shown = partitions[(page - 1) * _ROWS : page * _ROWS]
    times: dict[TopicPartition, int] = {}
    times_problem: Problem | None = None
    if request.flag("times"):
        times, times_problem = await attempt(next_times(cluster, _most_behind(shown, committed, ends)), {})
    now_ms = request.services.clock.wall_ms()
    lags = [lag_of(offset.offset, ends.get(at, Ends(None, None)).end_offset) for at, offset in committed.items()]
    topics = tuple(sorted({at.topic for at in partitions}))
    return Group(
        name=group.group_id,
        state=group.state,
        type=group.type,
        protocol=group.protocol_type,
        assignor=group.assignor,
        coordinator=str(group.coordinator),
        epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        is_active=bool(group.members),
        members=tuple(map(_member_row, group.members)),
        partitions=tuple(
            _offset_row(at, committed.get(at), ends.get(at), times.get(at), now_ms, owners.get(at)) for at in shown
        ),
        partition_count=len(partitions),
        page=page,
        pages=pages,
        topics=topics,
        lag=sum(lag or 0 for lag in lags) if committed else None,
        offsets_problem=offsets_problem or ends_problem,
        times_problem=times_problem,
        most_times=MOST_PARTITIONS,
        lines=await _lines(request, name, topics),
    )


def _most_behind(
    shown: list[TopicPartition], committed: dict[TopicPartition, OffsetAndMetadata], ends: dict[TopicPartition, Ends]
) -> dict[TopicPartition, int]:
    """The offsets to read, of the shown partitions that lag most."""
    lags = {
        at: lag_of(committed[at].offset, ends[at].end_offset) or 0 for at in shown if at in committed and at in ends
    }
    behind = sorted((at for at, lag in lags.items() if lag), key=lambda at: (-lags[at], at))
    return {at: committed[at].offset for at in behind[:MOST_PARTITIONS]}


def _member_row(member: GroupMember) -> MemberRow:
    return MemberRow(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.host,
        member.rack_id,
        member.member_epoch,
        member.subscribed_topics,
        len(member.assignment),
        member.assignment[:_MOST_NAMED],
    )


def _offset_row(
    at: TopicPartition,
    committed: OffsetAndMetadata | None,
    ends: Ends | None,
    next_time_ms: int | None,
    now_ms: int,
    owner: GroupMember | None,
) -> OffsetRow:
    end = None if ends is None else ends.end_offset
    lag = lag_of(None if committed is None else committed.offset, end)
    time_lag_ms = 0 if lag == 0 else None if next_time_ms is None else max(0, now_ms - next_time_ms)
    return OffsetRow(
        at.topic,
        at.partition,
        None if committed is None else committed.offset,
        "" if committed is None else committed.metadata[:200],
        end,
        lag,
        next_time_ms,
        time_lag_ms,
        "" if owner is None else owner.client_id,
    )


async def _lines(request: ConsoleRequest, group: str, topics: tuple[str, ...]) -> tuple[Series, ...]:
    """Lines of the topics that the visitor may see."""
    try:
        visible = await request.cluster.topics()
    except HeadraceError:
        return ()
    wanted = [topic for topic in topics if topic in visible][:_MOST_LINES]
    found = [await request.services.history.group_lines(group, topic, request.text("span")) for topic in wanted]
    return tuple(line for lines in found for line in lines)


PAGE = Page(
    "/groups/{group}",
    "Group {group}",
    read,
    "group.html",
    query=(
        SPAN,
        Field("page", kind="number", default=1, least=1, most=1_000_000, help="which partitions, from 1 on"),
        Field("times", "Time lag", kind="flag", default=False, help="also read the time of the next record to read"),
    ),
    section="/groups",
    live_seconds=3,
)
