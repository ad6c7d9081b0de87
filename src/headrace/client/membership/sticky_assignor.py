"""Computes a balanced assignment that keeps as much as possible of the last one.

Balanced means: no member could pass partitions on, directly or through others, to a member that has two partitions
less. This is the smallest sum of squared loads that the subscriptions allow. Java considers only direct moves, so this
assignment is sometimes better balanced than Java's, and never worse.

If all members read the same topics, which is nearly always true, quotas are enough: each member keeps partitions up to
its share, and the rest is dealt out. Otherwise the unassigned partitions go to the reader with the smallest load,
topics with few readers first. Then chains of moves, found breadth first, lower the highest loads. Each chain lowers the
sum of squares, so the search ends. Chains of partitions that nobody owned come first, because they cost nothing.
"""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence

from headrace.client.types import TopicPartition


def assign_sticky(
    topics_of: Mapping[str, frozenset[str]],
    owners: Mapping[TopicPartition, str],
    partition_counts: Mapping[str, int],
) -> dict[str, list[TopicPartition]]:
    """
    :param topics_of: the topics of each member. The order of the members decides between equal choices.
    :param owners: the members that had the partitions until now.
    """
    held: dict[str, list[TopicPartition]] = {member: [] for member in topics_of}
    unassigned: list[TopicPartition] = []
    for topic in sorted({topic for topics in topics_of.values() for topic in topics}):
        for number in range(partition_counts.get(topic, 0)):
            partition = TopicPartition(topic, number)
            owner = owners.get(partition)
            keeps = owner is not None and topic in topics_of.get(owner, ())
            (held[owner] if keeps and owner is not None else unassigned).append(partition)
    if len(set(topics_of.values())) == 1:
        _share_evenly(held, unassigned)
    elif topics_of:
        _Balancing(topics_of, owners, held).run(unassigned)
    return {member: sorted(partitions) for member, partitions in held.items()}


def _share_evenly(held: dict[str, list[TopicPartition]], unassigned: list[TopicPartition]) -> None:
    total = len(unassigned) + sum(map(len, held.values()))
    share, extras = divmod(total, len(held))
    for partitions in held.values():
        if len(partitions) > share:
            most = share + (extras > 0)
            extras -= extras > 0
            unassigned += partitions[most:]
            del partitions[most:]
    spare = deque(sorted(unassigned))
    hungry = [member for member in held if len(held[member]) < share]
    while hungry:
        for member in hungry:
            held[member].append(spare.popleft())
        hungry = [member for member in hungry if len(held[member]) < share]
    for member in held:
        if spare and len(held[member]) == share:
            held[member].append(spare.popleft())


class _Balancing:
    """The search for a balanced assignment if the members read different topics."""

    def __init__(
        self,
        topics_of: Mapping[str, frozenset[str]],
        owners: Mapping[TopicPartition, str],
        held: dict[str, list[TopicPartition]],
    ) -> None:
        self._held = held
        self._owners = owners
        self._readers: dict[str, list[str]] = defaultdict(list)
        for member, topics in topics_of.items():
            for topic in topics:
                self._readers[topic].append(member)

    def run(self, unassigned: Sequence[TopicPartition]) -> None:
        for partition in sorted(unassigned, key=lambda one: (len(self._readers[one.topic]), one)):
            least = min(self._readers[partition.topic], key=self._load)
            self._held[least].append(partition)
        # Partitions without an owner are moved first. If this is enough for a balance, no owner loses a partition, and
        # the second round of a cooperative rebalance can assign everything.
        for only_new in (True, False):
            while any(self._relieve(member, only_new) for member in sorted(self._held, key=self._load, reverse=True)):
                pass

    def _load(self, member: str) -> int:
        return len(self._held[member])

    def _relieve(self, loaded: str, only_new: bool) -> bool:
        """Finds and makes a chain of moves from a member to one that has two partitions less. Returns whether it did.

        :param only_new: no member gives a partition away that it owned before.
        """
        given_by: dict[str, tuple[str, str]] = {}
        waiting, seen_topics = deque([loaded]), set[str]()
        while waiting:
            giver = waiting.popleft()
            movable = (one for one in self._held[giver] if not only_new or self._owners.get(one) != giver)
            for topic in sorted({partition.topic for partition in movable} - seen_topics):
                seen_topics.add(topic)
                for taker in self._readers[topic]:
                    if taker == loaded or taker in given_by:
                        continue
                    given_by[taker] = giver, topic
                    if self._load(taker) <= self._load(loaded) - 2:
                        self._hand_over(loaded, taker, given_by)
                        return True
                    waiting.append(taker)
        return False

    def _hand_over(self, first: str, last: str, given_by: Mapping[str, tuple[str, str]]) -> None:
        taker = last
        while taker != first:
            giver, topic = given_by[taker]
            partition = self._cheapest(giver, taker, topic)
            self._held[giver].remove(partition)
            self._held[taker].append(partition)
            taker = giver

    def _cheapest(self, giver: str, taker: str, topic: str) -> TopicPartition:
        """Chooses a partition that the taker owned before, or one that the giver did not own."""

        def cost(partition: TopicPartition) -> tuple[bool, bool, int]:
            owner = self._owners.get(partition)
            return owner != taker, owner == giver, -partition.partition

        return min((one for one in self._held[giver] if one.topic == topic), key=cost)
