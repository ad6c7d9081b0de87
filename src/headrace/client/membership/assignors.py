"""The assignors of a classic group: pure functions that give each member its partitions. The group's leader runs one.

=================== ======================================================================================== ===========
``range``           per topic: the subscribers, in order, get consecutive partitions; the first subscribers  eager
                    get one more if the number does not divide evenly
``roundrobin``      all partitions of all topics, in order, are given to the members in turn; a member that  eager
                    does not read the topic is skipped
``sticky``          balanced, and with few moves (``sticky_assignor.py``)                                    eager
``cooperative-      the same, but a partition that another member still owns is not assigned yet: its owner  cooperative
sticky``            revokes it after this round, and joins again so that a second round assigns it (KIP-429)
=================== ======================================================================================== ===========

Members are ordered as Java orders them, so that leaders in both languages compute the same assignment: static members
first, by their instance ids, then the others by their member ids, both compared as UTF-16. Topics without partitions
(unknown topics) are ignored. Not supported: racks (KIP-881). Java's ``range`` differs from this one only if members and
replicas both have racks.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from itertools import cycle
from typing import NamedTuple

from headrace.client.membership.sticky_assignor import assign_sticky
from headrace.client.types import TopicPartition
from headrace.protocol.wire.consumer_protocol import (
    NO_GENERATION,
    StickyUserData,
    Subscription,
    decode_cooperative_user_data,
    decode_sticky_user_data,
    encode_cooperative_user_data,
    encode_sticky_user_data,
)


class Member(NamedTuple):
    """A member of the group, as an assignor sees it."""

    topics: frozenset[str]
    owned: frozenset[TopicPartition] = frozenset()
    #: The generation in which the member got the partitions.
    generation: int = NO_GENERATION
    group_instance_id: str | None = None


Members = Mapping[str, Member]
Assignments = dict[str, list[TopicPartition]]


class Rebalance(Enum):
    """Whether a member revokes its partitions before it joins (eager), or keeps them (cooperative)."""

    EAGER = "eager"
    COOPERATIVE = "cooperative"


class Assignor(NamedTuple):
    """An assignment strategy with its name."""

    name: str
    rebalance: Rebalance
    assign: Callable[[Members, Mapping[str, int]], Assignments]


def in_order(members: Members) -> list[str]:
    """Returns the member ids as Java sorts them."""

    def rank(member_id: str) -> tuple[bool, bytes]:
        instance_id = members[member_id].group_instance_id
        return instance_id is None, (member_id if instance_id is None else instance_id).encode("utf-16-be")

    return sorted(members, key=rank)


def assign_range(members: Members, partition_counts: Mapping[str, int]) -> Assignments:
    order = in_order(members)
    assignments: Assignments = {member_id: [] for member_id in members}
    for topic in _topics(members):
        readers = [member_id for member_id in order if topic in members[member_id].topics]
        share, extra = divmod(partition_counts.get(topic, 0), len(readers))
        first = 0
        for rank, member_id in enumerate(readers):
            end = first + share + (rank < extra)
            assignments[member_id] += [TopicPartition(topic, number) for number in range(first, end)]
            first = end
    return assignments


def assign_roundrobin(members: Members, partition_counts: Mapping[str, int]) -> Assignments:
    assignments: Assignments = {member_id: [] for member_id in members}
    dealing = cycle(in_order(members))
    for topic in _topics(members):
        for number in range(partition_counts.get(topic, 0)):
            reader = next(member_id for member_id in dealing if topic in members[member_id].topics)
            assignments[reader].append(TopicPartition(topic, number))
    return assignments


def assign_sticky_eager(members: Members, partition_counts: Mapping[str, int]) -> Assignments:
    order = in_order(members)
    topics = {member_id: members[member_id].topics for member_id in order}
    return assign_sticky(topics, _owners(members), partition_counts)


def assign_cooperative(members: Members, partition_counts: Mapping[str, int]) -> Assignments:
    """Assigns like "sticky", but leaves out partitions that another member claims.

    The claim counts even if it is outdated, because that member may still read the partition.
    """
    claims: dict[TopicPartition, set[str]] = {}
    for member_id, member in members.items():
        for partition in member.owned:
            claims.setdefault(partition, set()).add(member_id)
    return {
        member_id: [partition for partition in partitions if partition not in claims or member_id in claims[partition]]
        for member_id, partitions in assign_sticky_eager(members, partition_counts).items()
    }


ASSIGNORS: dict[str, Assignor] = {
    assignor.name: assignor
    for assignor in (
        Assignor("range", Rebalance.EAGER, assign_range),
        Assignor("roundrobin", Rebalance.EAGER, assign_roundrobin),
        Assignor("sticky", Rebalance.EAGER, assign_sticky_eager),
        Assignor("cooperative-sticky", Rebalance.COOPERATIVE, assign_cooperative),
    )
}


def user_data_for(name: str, owned: frozenset[TopicPartition], generation: int) -> bytes | None:
    """Returns the user data that an assignor needs in the subscription of a member that had these partitions."""
    if name == "sticky":
        return encode_sticky_user_data(StickyUserData(tuple(sorted(owned)), generation)) if owned else None
    return encode_cooperative_user_data(generation) if name == "cooperative-sticky" else None


def member_from(name: str, subscription: Subscription, group_instance_id: str | None = None) -> Member:
    """Makes a member from the subscription that it has sent."""
    owned, generation = subscription.owned, subscription.generation
    if name == "sticky":
        owned, generation = decode_sticky_user_data(subscription.user_data)
    elif name == "cooperative-sticky" and generation == NO_GENERATION:
        generation = decode_cooperative_user_data(subscription.user_data)
    return Member(frozenset(subscription.topics), frozenset(owned), generation, group_instance_id)


def _topics(members: Members) -> list[str]:
    return sorted({topic for member in members.values() for topic in member.topics})


def _owners(members: Members) -> dict[TopicPartition, str]:
    """Returns the owner of each partition. Of two claims, the one of the later generation counts; two claims of the
    same generation cancel each other."""
    owners: dict[TopicPartition, str | None] = {}
    since: dict[TopicPartition, int] = {}
    for member_id, member in members.items():
        for partition in member.owned:
            if partition not in since or member.generation > since[partition]:
                owners[partition], since[partition] = member_id, member.generation
            elif member.generation == since[partition]:
                owners[partition] = None
    return {partition: member_id for partition, member_id in owners.items() if member_id is not None}
