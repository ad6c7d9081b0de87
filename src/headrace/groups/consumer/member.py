"""One member of a group of the consumer protocol (KIP-848), as its records describe it.

A member has an *epoch*: the epoch of the target assignment that the member has reached. The member may read the
partitions that it is *assigned*. Partitions that the member has to give up are *pending revocation*: the coordinator
assigns them to another member only after this member has confirmed that it has given them up.

============= ==================================================================================================
STABLE        the member has the partitions that the target assignment gives to it
UNREVOKED     the member has to give up partitions first; until then it stays at its old epoch
UNRELEASED    the member is at the target's epoch, and waits for partitions that others have not given up yet
============= ==================================================================================================

Members are never changed: applying a record makes a new member.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any
from uuid import UUID

from headrace.groups.consumer.assignment import Assignment, from_wire, union

#: Member epochs in a heartbeat that stand for an action: the member joins, leaves, or (a static one) leaves for a
#: while.
JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2

NO_REBALANCE_TIMEOUT = -1


class ConsumerMemberState(IntEnum):
    """The progress of a member towards its target assignment. The numbers are those in the records."""

    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2
    #: A newer version of Kafka has written a state that this version does not have.
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class ClassicMemberMetadata:
    """The data that the coordinator stores for a member that still uses the classic protocol (online migration)."""

    session_timeout_ms: int
    #: Names of assignment strategies with their metadata, the preferred one first.
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """A member: its description, which the member sends, and its progress, which the coordinator decides."""

    member_id: str
    # The description.
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = None
    rebalance_timeout_ms: int = NO_REBALANCE_TIMEOUT
    server_assignor: str | None = None
    #: None for a member that uses the consumer protocol.
    classic_metadata: ClassicMemberMetadata | None = None
    # The progress.
    epoch: int = 0
    previous_epoch: int = 0
    state: ConsumerMemberState = ConsumerMemberState.STABLE
    assigned: Assignment = field(default_factory=dict)
    pending_revocation: Assignment = field(default_factory=dict)
    #: By topic and partition, the epoch at which the member was assigned the partition. A partition that is missing
    #: here was assigned at the member's present epoch.
    assignment_epochs: Mapping[UUID, Mapping[int, int]] = field(default_factory=dict)

    @property
    def holds(self) -> Assignment:
        """The partitions that no other member may get yet."""
        return union(self.assigned, self.pending_revocation)

    @property
    def is_away(self) -> bool:
        """Tells whether this is a static member that has left for a while."""
        return self.epoch == STATIC_LEAVE_EPOCH

    def has_subscription_of(self, other: "ConsumerMember") -> bool:
        return self.topic_names == other.topic_names and (self.topic_regex or "") == (other.topic_regex or "")

    def has_description_of(self, other: "ConsumerMember") -> bool:
        return self.with_progress_of(other) == other

    def with_progress_of(self, other: "ConsumerMember") -> "ConsumerMember":
        """A member with this member's description, and with the member id and the progress of the other."""
        return replace(
            self,
            member_id=other.member_id,
            epoch=other.epoch,
            previous_epoch=other.previous_epoch,
            state=other.state,
            assigned=other.assigned,
            pending_revocation=other.pending_revocation,
            assignment_epochs=other.assignment_epochs,
        )

    def assigned_at(self, topic_id: UUID, partition: int) -> int:
        """The epoch at which the member was assigned a partition that it holds."""
        return self.assignment_epochs.get(topic_id, {}).get(partition, self.epoch)

    def with_description_record(self, value: Any) -> "ConsumerMember":
        """The member with the description in a ConsumerGroupMemberMetadataValue."""
        classic = value.classic_member_metadata
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=frozenset(value.subscribed_topic_names),
            topic_regex=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic_metadata=None
            if classic is None
            else ClassicMemberMetadata(
                classic.session_timeout_ms, tuple((each.name, each.metadata) for each in classic.supported_protocols)
            ),
        )

    def with_progress_record(self, value: Any) -> "ConsumerMember":
        """The member with the progress in a ConsumerGroupCurrentMemberAssignmentValue."""
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=_state_of(value.state),
            assigned=from_wire(value.assigned_partitions),
            pending_revocation=from_wire(value.partitions_pending_revocation),
            assignment_epochs=_epochs_of(
                [*value.assigned_partitions, *value.partitions_pending_revocation], value.member_epoch
            ),
        )


def _epochs_of(topics: Iterable[Any], member_epoch: int) -> Mapping[UUID, Mapping[int, int]]:
    """Records from before KIP-1251 have no epochs of partitions; then the member's epoch counts."""
    epochs: dict[UUID, dict[int, int]] = {}
    for topic in topics:
        recorded = topic.assignment_epochs or (member_epoch,) * len(topic.partitions)
        epochs.setdefault(topic.topic_id, {}).update(zip(topic.partitions, recorded, strict=False))
    return epochs


def _state_of(number: int) -> ConsumerMemberState:
    is_known = number in ConsumerMemberState._value2member_map_
    return ConsumerMemberState(number) if is_known else ConsumerMemberState.UNKNOWN
