"""Computes which member reads which partition: the assignors that run in the coordinator (KIP-848).

``uniform`` gives every member the same number of partitions, as far as the subscriptions allow, and moves as few
partitions as possible. If all members subscribe to the same topics, the numbers differ by at most one. If not, each
free partition goes to the member with the fewest. Then partitions move along chains of members, from members with too
many partitions to members with too few, until no chain improves the balance.

``range`` divides the partitions of each topic into ranges. The members are in the order of their instance ids (members
that have one come first), then of their member ids. So topics with the same subscribers give the same partition numbers
to the same member. ``range`` is not sticky.

Neither assignor looks at racks. The result depends only on the input, not on the order of members or topics in it.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple
from uuid import UUID

from headrace.groups.consumer.assignment import NO_PARTITIONS, Assignment
from headrace.groups.context import Settings

Partition = tuple[UUID, int]


class Subscriber(NamedTuple):
    """A member, as an assignor sees it."""

    #: The ids of the topics that the member subscribes to and that exist.
    topics: frozenset[UUID]
    #: The partitions that the last target assignment gave to the member.
    previous: Assignment = NO_PARTITIONS
    instance_id: str | None = None


#: The partitions of each member, by member ids. Every member is in it.
TargetAssignment = dict[str, Assignment]
Assignor = Callable[[Mapping[str, Subscriber], Mapping[UUID, int]], TargetAssignment]


def assign_uniform(members: Mapping[str, Subscriber], partition_counts: Mapping[UUID, int]) -> TargetAssignment:
    """``partition_counts`` has every topic that a member subscribes to."""
    if not members:
        return {}
    subscriptions = {subscriber.topics for subscriber in members.values()}
    target = (
        _assign_same_topics(members, partition_counts, next(iter(subscriptions)))
        if len(subscriptions) == 1
        else _Balancer(members, partition_counts).balance()
    )
    return {
        member_id: {topic: frozenset(numbers) for topic, numbers in assigned.items() if numbers}
        for member_id, assigned in target.items()
    }


def _assign_same_topics(
    members: Mapping[str, Subscriber], partition_counts: Mapping[UUID, int], topics: frozenset[UUID]
) -> dict[str, dict[UUID, set[int]]]:
    """All members subscribe to the same topics: each keeps up to its share, and the others get the rest in turn."""
    share, extra_count = divmod(sum(partition_counts[topic] for topic in topics), len(members))
    free = {topic: set(range(partition_counts[topic])) for topic in topics}
    target: dict[str, dict[UUID, set[int]]] = {}
    missing_counts: dict[str, int] = {}
    for member_id in _by_partition_count(members):
        target[member_id], kept_count = _keep(members[member_id].previous, free, share + (extra_count > 0))
        if kept_count > share:
            extra_count -= 1
        else:
            missing_counts[member_id] = share - kept_count
    for member_id in sorted(missing_counts)[:extra_count]:
        missing_counts[member_id] += 1
    _fill(target, missing_counts, [(topic, partition) for topic in sorted(free) for partition in sorted(free[topic])])
    return target


def _by_partition_count(members: Mapping[str, Subscriber]) -> list[str]:
    """The members with the most partitions first, so that these keep the partitions that are left over."""
    return sorted(members, key=lambda each: (-sum(map(len, members[each].previous.values())), each))


def _keep(previous: Assignment, free: Mapping[UUID, set[int]], room: int) -> tuple[dict[UUID, set[int]], int]:
    """The partitions that a member keeps, and how many they are. Removes these partitions from ``free``."""
    kept: dict[UUID, set[int]] = {}
    kept_count = 0
    for topic in sorted(previous):
        numbers = sorted(previous[topic] & free.get(topic, frozenset()))[: room - kept_count]
        if numbers:
            kept[topic] = set(numbers)
            free[topic].difference_update(numbers)
            kept_count += len(numbers)
    return kept, kept_count


def _fill(target: dict[str, dict[UUID, set[int]]], missing_counts: dict[str, int], free: list[Partition]) -> None:
    """Gives the free partitions in turn to the members that miss some."""
    turn = deque(member_id for member_id in sorted(missing_counts) if missing_counts[member_id])
    for topic, partition in free:
        member_id = turn.popleft()
        target[member_id].setdefault(topic, set()).add(partition)
        missing_counts[member_id] -= 1
        if missing_counts[member_id]:
            turn.append(member_id)


class _Balancer:
    """Assigns partitions to members with different subscriptions, as evenly as the subscriptions allow."""

    def __init__(self, members: Mapping[str, Subscriber], partition_counts: Mapping[UUID, int]) -> None:
        self._members = members
        self._subscribers = {
            topic: [member_id for member_id in sorted(members) if topic in members[member_id].topics]
            for topic in sorted({topic for subscriber in members.values() for topic in subscriber.topics})
        }
        self._counts = partition_counts
        self._assigned: dict[str, dict[UUID, set[int]]] = {member_id: {} for member_id in sorted(members)}
        self._load = dict.fromkeys(self._assigned, 0)

    def balance(self) -> dict[str, dict[UUID, set[int]]]:
        for topic, partition in self._keep_previous():
            self._give(min(self._subscribers[topic], key=self._load.__getitem__), topic, partition)
        while any(self._relieve(member_id) for member_id in sorted(self._load, key=self._load.__getitem__)[::-1]):
            pass
        return self._assigned

    def _keep_previous(self) -> list[Partition]:
        """Gives each member the partitions that it had. Returns the free partitions.

        Partitions of topics with few subscribers come first.
        """
        free = {topic: set(range(self._counts[topic])) for topic in self._subscribers}
        for member_id, subscriber in sorted(self._members.items(), key=lambda each: each[0]):
            for topic, partitions in subscriber.previous.items():
                if topic in subscriber.topics:
                    for partition in sorted(partitions & free[topic]):
                        free[topic].discard(partition)
                        self._give(member_id, topic, partition)
        by_subscribers = sorted(free, key=lambda topic: (len(self._subscribers[topic]), topic))
        return [(topic, partition) for topic in by_subscribers for partition in sorted(free[topic])]

    def _give(self, member_id: str, topic: UUID, partition: int) -> None:
        self._assigned[member_id].setdefault(topic, set()).add(partition)
        self._load[member_id] += 1

    def _relieve(self, member_id: str) -> bool:
        """Moves one partition along the shortest chain of members to a member that has at least two fewer.

        Each member of the chain gives one partition to the next. Returns False if there is no such chain.
        """
        came_by: dict[str, tuple[str, UUID]] = {}
        seen_topics: set[UUID] = set()
        queue = deque([member_id])
        while queue:
            giver = queue.popleft()
            for topic, numbers in self._assigned[giver].items():
                if not numbers or topic in seen_topics:
                    continue
                seen_topics.add(topic)
                for taker in self._subscribers[topic]:
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
            partition = max(self._assigned[giver][topic])
            self._assigned[giver][topic].discard(partition)
            self._load[giver] -= 1
            self._give(taker, topic, partition)
            taker = giver


def assign_range(members: Mapping[str, Subscriber], partition_counts: Mapping[UUID, int]) -> TargetAssignment:
    """``partition_counts`` has every topic that a member subscribes to."""
    target: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in members}
    in_order = sorted(
        members, key=lambda each: (members[each].instance_id is None, members[each].instance_id or "", each)
    )
    for topic in {topic for subscriber in members.values() for topic in subscriber.topics}:
        subscribers = [member_id for member_id in in_order if topic in members[member_id].topics]
        share, extra_count = divmod(partition_counts[topic], len(subscribers))
        start = 0
        for at, member_id in enumerate(subscribers):
            end = start + share + (at < extra_count)
            if end > start:
                target[member_id][topic] = frozenset(range(start, end))
            start = end
    return dict(target)


#: The assignors, by the names that members ask for and that ``group.consumer.assignors`` lists.
ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}


def configured_assignors(settings: Settings) -> tuple[str, ...]:
    """The names that members may ask for; the first is the default. Names of Java classes are ignored."""
    return tuple(name for name in settings.list("group.consumer.assignors") if name in ASSIGNORS) or tuple(ASSIGNORS)
