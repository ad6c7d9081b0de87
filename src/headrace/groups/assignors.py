"""Who is to read what: the assignors that run in the coordinator (KIP-848).

``uniform`` gives every member as many partitions as any other, as far as subscriptions allow, and moves as few as it
can. If all members read the same topics, their numbers differ by one at most. If not, partitions go to the member with
the fewest, and then along chains of members from those with too many to those with too few, until no chain helps.

``range`` gives each topic's partitions in ranges, to members in the order of their instance ids (those that have one)
and member ids; so partitions of the same number of topics with the same readers end up with the same member. It is not
sticky. Neither looks at racks.

Both are functions of their input alone: the order of members or of topics in it does not matter.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple
from uuid import UUID

from headrace.groups.assignment import NOTHING, Assignment
from headrace.groups.context import Settings

Partition = tuple[UUID, int]


class Subscriber(NamedTuple):
    #: Ids of topics that exist.
    topics: frozenset[UUID]
    #: What the last target gave it.
    previous: Assignment = NOTHING
    instance_id: str | None = None


#: Ids of members with what they are to have; every member is in it.
Plan = dict[str, Assignment]
Assignor = Callable[[Mapping[str, Subscriber], Mapping[UUID, int]], Plan]


def assign_uniform(members: Mapping[str, Subscriber], partition_counts: Mapping[UUID, int]) -> Plan:
    """``partition_counts`` has every topic that somebody subscribes to."""
    if not members:
        return {}
    subscriptions = {subscriber.topics for subscriber in members.values()}
    plan = (
        _evenly(members, partition_counts, next(iter(subscriptions)))
        if len(subscriptions) == 1
        else _Balance(members, partition_counts).settle()
    )
    return {
        member_id: {topic: frozenset(mine) for topic, mine in has.items() if mine} for member_id, has in plan.items()
    }


def _evenly(
    members: Mapping[str, Subscriber], partition_counts: Mapping[UUID, int], topics: frozenset[UUID]
) -> dict[str, dict[UUID, set[int]]]:
    """All read the same topics: everyone keeps what it may, and those below their share get the rest in turn."""
    share, extra_count = divmod(sum(partition_counts[topic] for topic in topics), len(members))
    free = {topic: set(range(partition_counts[topic])) for topic in topics}
    plan: dict[str, dict[UUID, set[int]]] = {}
    missing_counts: dict[str, int] = {}
    for member_id in _most_first(members):
        plan[member_id], kept_count = _keep(members[member_id].previous, free, share + (extra_count > 0))
        if kept_count > share:
            extra_count -= 1
        else:
            missing_counts[member_id] = share - kept_count
    for member_id in sorted(missing_counts)[:extra_count]:
        missing_counts[member_id] += 1
    _fill(plan, missing_counts, [(topic, partition) for topic in sorted(free) for partition in sorted(free[topic])])
    return plan


def _most_first(members: Mapping[str, Subscriber]) -> list[str]:
    """Who has most is first in line to keep one more than others."""
    return sorted(members, key=lambda each: (-sum(map(len, members[each].previous.values())), each))


def _keep(previous: Assignment, free: Mapping[UUID, set[int]], room: int) -> tuple[dict[UUID, set[int]], int]:
    """What a member keeps of what it had, taken out of ``free``, and how many partitions that is."""
    kept: dict[UUID, set[int]] = {}
    kept_count = 0
    for topic in sorted(previous):
        mine = sorted(previous[topic] & free.get(topic, frozenset()))[: room - kept_count]
        if mine:
            kept[topic] = set(mine)
            free[topic].difference_update(mine)
            kept_count += len(mine)
    return kept, kept_count


def _fill(plan: dict[str, dict[UUID, set[int]]], missing_counts: dict[str, int], free: list[Partition]) -> None:
    turn = deque(member_id for member_id in sorted(missing_counts) if missing_counts[member_id])
    for topic, partition in free:
        member_id = turn.popleft()
        plan[member_id].setdefault(topic, set()).add(partition)
        missing_counts[member_id] -= 1
        if missing_counts[member_id]:
            turn.append(member_id)


class _Balance:
    """Members that read different topics: as even as their subscriptions allow."""

    def __init__(self, members: Mapping[str, Subscriber], partition_counts: Mapping[UUID, int]) -> None:
        self._members = members
        self._readers = {
            topic: [member_id for member_id in sorted(members) if topic in members[member_id].topics]
            for topic in sorted({topic for subscriber in members.values() for topic in subscriber.topics})
        }
        self._counts = partition_counts
        self._has: dict[str, dict[UUID, set[int]]] = {member_id: {} for member_id in sorted(members)}
        self._load = dict.fromkeys(self._has, 0)

    def settle(self) -> dict[str, dict[UUID, set[int]]]:
        for topic, partition in self._keep():
            self._give(min(self._readers[topic], key=self._load.__getitem__), topic, partition)
        while any(self._relieve(member_id) for member_id in sorted(self._load, key=self._load.__getitem__)[::-1]):
            pass
        return self._has

    def _keep(self) -> list[Partition]:
        """Everyone keeps what it had; the rest, with those first that few members read, is free."""
        free = {topic: set(range(self._counts[topic])) for topic in self._readers}
        for member_id, subscriber in sorted(self._members.items(), key=lambda each: each[0]):
            for topic, partitions in subscriber.previous.items():
                if topic in subscriber.topics:
                    for partition in sorted(partitions & free[topic]):
                        free[topic].discard(partition)
                        self._give(member_id, topic, partition)
        by_readers = sorted(free, key=lambda topic: (len(self._readers[topic]), topic))
        return [(topic, partition) for topic in by_readers for partition in sorted(free[topic])]

    def _give(self, member_id: str, topic: UUID, partition: int) -> None:
        self._has[member_id].setdefault(topic, set()).add(partition)
        self._load[member_id] += 1

    def _relieve(self, member_id: str) -> bool:
        """Moves one partition along the shortest chain of members to one that has two fewer, if there is any."""
        came_by: dict[str, tuple[str, UUID]] = {}
        seen_topics: set[UUID] = set()
        queue = deque([member_id])
        while queue:
            giver = queue.popleft()
            for topic, mine in self._has[giver].items():
                if not mine or topic in seen_topics:
                    continue
                seen_topics.add(topic)
                for taker in self._readers[topic]:
                    if taker == member_id or taker in came_by:
                        continue
                    came_by[taker] = (giver, topic)
                    if self._load[taker] <= self._load[member_id] - 2:
                        self._move_along(taker, member_id, came_by)
                        return True
                    queue.append(taker)
        return False

    def _move_along(self, taker: str, until: str, came_by: Mapping[str, tuple[str, UUID]]) -> None:
        while taker != until:
            giver, topic = came_by[taker]
            partition = max(self._has[giver][topic])
            self._has[giver][topic].discard(partition)
            self._load[giver] -= 1
            self._give(taker, topic, partition)
            taker = giver


def assign_range(members: Mapping[str, Subscriber], partition_counts: Mapping[UUID, int]) -> Plan:
    """``partition_counts`` has every topic that somebody subscribes to."""
    plan: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in members}
    in_line = sorted(
        members, key=lambda each: (members[each].instance_id is None, members[each].instance_id or "", each)
    )
    for topic in {topic for subscriber in members.values() for topic in subscriber.topics}:
        readers = [member_id for member_id in in_line if topic in members[member_id].topics]
        share, extra_count = divmod(partition_counts[topic], len(readers))
        start = 0
        for at, member_id in enumerate(readers):
            end = start + share + (at < extra_count)
            if end > start:
                plan[member_id][topic] = frozenset(range(start, end))
            start = end
    return dict(plan)


#: By the names that members ask for, and that ``group.consumer.assignors`` lists.
ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}


def assignors_of(settings: Settings) -> tuple[str, ...]:
    """Those that members may ask for; the first is the default. Java classes in the setting mean nothing here."""
    return tuple(name for name in settings.list("group.consumer.assignors") if name in ASSIGNORS) or tuple(ASSIGNORS)
