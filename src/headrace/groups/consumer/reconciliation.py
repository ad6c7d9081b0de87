"""Leads a member from its partitions to those of the target assignment: revoke first, then assign (KIP-848).

With each heartbeat a member takes at most one step:

1. The member has partitions that the target does not give to it. The coordinator tells the member to give them up. The
   member stays at its old epoch.
2. The member's heartbeat shows that the member has given them up. The member moves to the target's epoch, and gets
   those partitions of its target that no other member holds.
3. Other members still hold partitions of the target. The member waits at the new epoch, and gets each partition when it
   is free.

A partition is free only when its last holder has confirmed that it gave the partition up, or has left the group. So two
members never read one partition at the same time.
"""

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

from headrace.groups.consumer.assignment import (
    Assignment,
    difference,
    from_pairs,
    intersection,
    overlaps,
    pairs,
    union,
)
from headrace.groups.consumer.member import ConsumerMember, ConsumerMemberState
from headrace.protocol.errors import FencedMemberEpoch


def reconcile(
    member: ConsumerMember,
    target: Assignment,
    target_epoch: int,
    *,
    owned: Assignment | None,
    is_free: Callable[[UUID, int], bool],
) -> ConsumerMember:
    """The member after its next step. The same object if there is no step to take.

    :param owned: the partitions that the member says it owns; None if the member does not say.
    :param is_free: tells whether no other member holds a partition.
    :raises FencedMemberEpoch: if a newer coordinator has written a state of the member that is not known here.
    """
    if member.state is ConsumerMemberState.UNKNOWN:
        if owned is None or owned:
            raise FencedMemberEpoch(
                f"a newer coordinator has written a state of the member {member.member_id!r} that is not known here; "
                "give up all partitions and join again"
            )
        return _next_step(replace(member, assigned={}, pending_revocation={}), target, target_epoch, owned, is_free)
    if member.state is ConsumerMemberState.STABLE and member.epoch == target_epoch:
        return member
    if member.state is ConsumerMemberState.UNREVOKED and (owned is None or overlaps(member.pending_revocation, owned)):
        return member
    return _next_step(member, target, target_epoch, owned, is_free)


def _next_step(
    member: ConsumerMember,
    target: Assignment,
    target_epoch: int,
    owned: Assignment | None,
    is_free: Callable[[UUID, int], bool],
) -> ConsumerMember:
    kept = intersection(member.assigned, target)
    to_revoke = difference(member.assigned, target)
    if to_revoke and (owned is None or overlaps(to_revoke, owned)):
        return replace(member, state=ConsumerMemberState.UNREVOKED, assigned=kept, pending_revocation=to_revoke)
    missing = difference(target, kept)
    free = from_pairs(pair for pair in pairs(missing) if is_free(*pair))
    assigned = union(kept, free)
    return replace(
        member,
        epoch=target_epoch,
        previous_epoch=member.epoch if member.epoch != target_epoch else member.previous_epoch,
        state=ConsumerMemberState.STABLE if free == missing else ConsumerMemberState.UNRELEASED,
        assigned=assigned,
        pending_revocation={},
        assignment_epochs={
            topic: {
                partition: member.assigned_at(topic, partition) if partition in kept.get(topic, ()) else target_epoch
                for partition in partitions
            }
            for topic, partitions in assigned.items()
        },
    )
