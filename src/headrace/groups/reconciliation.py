"""How a member gets from what it has to what the target assignment gives it: revoke first, then assign (KIP-848).

With each heartbeat a member takes at most one step:

1. It has partitions that the target does not give it: it is told to let go of them, and stays at its old epoch.
2. It has let go of them (its heartbeat says what it owns): it moves to the target's epoch, and gets whatever of its
   target nobody else holds.
3. Something of its target is still held by others: it waits at the new epoch, and gets it when it is free.

A partition is free only when its last holder has said so or is gone; so no two members ever read one at the same time.
"""

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

from headrace.groups.assignment import Assignment, both, each, of_pairs, overlaps, together, without
from headrace.groups.consumer_member import ConsumerMember, MemberState
from headrace.protocol.errors import FencedMemberEpoch


def reconcile(
    member: ConsumerMember,
    target: Assignment,
    target_epoch: int,
    *,
    owned: Assignment | None,
    is_free: Callable[[UUID, int], bool],
) -> ConsumerMember:
    """The member after its next step; itself if there is none to take.

    :param owned: what it says to have, None if it does not say.
    :param is_free: whether a partition is held by nobody but this member.
    :raises FencedMemberEpoch: if only a newer broker knows where it is.
    """
    if member.state is MemberState.UNKNOWN:
        if owned is None or owned:
            raise FencedMemberEpoch("a newer coordinator has left the member in a state that is not known here")
        return _next(replace(member, assigned={}, pending_revocation={}), target, target_epoch, owned, is_free)
    if member.state is MemberState.STABLE and member.epoch == target_epoch:
        return member
    if member.state is MemberState.UNREVOKED and (owned is None or overlaps(member.pending_revocation, owned)):
        return member
    return _next(member, target, target_epoch, owned, is_free)


def _next(
    member: ConsumerMember,
    target: Assignment,
    target_epoch: int,
    owned: Assignment | None,
    is_free: Callable[[UUID, int], bool],
) -> ConsumerMember:
    kept = both(member.assigned, target)
    to_revoke = without(member.assigned, target)
    if to_revoke and (owned is None or overlaps(to_revoke, owned)):
        return replace(member, state=MemberState.UNREVOKED, assigned=kept, pending_revocation=to_revoke)
    wanted = without(target, kept)
    free = of_pairs(pair for pair in each(wanted) if is_free(*pair))
    assigned = together(kept, free)
    return replace(
        member,
        epoch=target_epoch,
        previous_epoch=member.epoch if member.epoch != target_epoch else member.previous_epoch,
        state=MemberState.STABLE if free == wanted else MemberState.UNRELEASED,
        assigned=assigned,
        pending_revocation={},
        since={
            topic: {
                partition: member.assigned_at(topic, partition) if partition in kept.get(topic, ()) else target_epoch
                for partition in partitions
            }
            for topic, partitions in assigned.items()
        },
    )
