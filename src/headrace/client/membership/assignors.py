"""Who of a classic group reads what: the leader's choice, as pure functions of subscriptions and partition counts.

=================== ======================================================================================== ===========
``range``           each topic by itself: its subscribers in order get consecutive runs, the first ones one  eager
                    more where it does not divide
``roundrobin``      all partitions of all topics in order, dealt to the members in order; who does not read  eager
                    the topic is passed over
``sticky``          balanced, and of all balanced assignments one that moves little (``sticky.py``)          eager
``cooperative-      the same, but what another member still owns is withheld: its owner gives it up after    cooperative
sticky``            this round, and joins again for a second one that hands it out (KIP-429)
=================== ======================================================================================== ===========

Members are ordered as Java orders them, so that leaders in two languages choose alike: static members first by their
instance ids, then the others by member ids, both as UTF-16. Topics without partitions (unknown ones) give nothing.
Not supported: racks (KIP-881); Java's ``range`` differs from ours only where members and replicas both name racks.
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
    #: In which it came to own them.
    generation: int = NO_GENERATION
    group_instance_id: str | None = None


Members = Mapping[str, Member]
Assignments = dict[str, list[TopicPartition]]


class Rebalance(Enum):
    """What a member does with its partitions before it joins: gives all up, or keeps them."""

    EAGER = "eager"
    COOPERATIVE = "cooperative"


class Assignor(NamedTuple):
    name: str
    rebalance: Rebalance
    assign: Callable[[Members, Mapping[str, int]], Assignments]


def in_order(members: Members) -> list[str]:
    """Member ids as Java sorts them."""

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
    return assign_sticky(topics, _rightful(members), partition_counts)


def assign_cooperative(members: Members, partition_counts: Mapping[str, int]) -> Assignments:
    """What a member would get that another one claims is left out, even if that claim is out of date: it may still
    be reading it."""
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
    """What a member that had these partitions in that generation adds to its subscription for an assignor."""
    if name == "sticky":
        return encode_sticky_user_data(StickyUserData(tuple(sorted(owned)), generation)) if owned else None
    return encode_cooperative_user_data(generation) if name == "cooperative-sticky" else None


def member_from(name: str, subscription: Subscription, group_instance_id: str | None = None) -> Member:
    """A member as an assignor sees it, from what it sent."""
    owned, generation = subscription.owned, subscription.generation
    if name == "sticky":
        owned, generation = decode_sticky_user_data(subscription.user_data)
    elif name == "cooperative-sticky" and generation == NO_GENERATION:
        generation = decode_cooperative_user_data(subscription.user_data)
    return Member(frozenset(subscription.topics), frozenset(owned), generation, group_instance_id)


def _topics(members: Members) -> list[str]:
    return sorted({topic for member in members.values() for topic in member.topics})


def _rightful(members: Members) -> dict[TopicPartition, str]:
    """Who owns what. Of two claims the younger generation's holds; two of the same cancel out."""
    owners: dict[TopicPartition, str | None] = {}
    since: dict[TopicPartition, int] = {}
    for member_id, member in members.items():
        for partition in member.owned:
            if partition not in since or member.generation > since[partition]:
                owners[partition], since[partition] = member_id, member.generation
            elif member.generation == since[partition]:
                owners[partition] = None
    return {partition: member_id for partition, member_id in owners.items() if member_id is not None}
