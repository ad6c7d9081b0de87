"""A member of a group of the consumer protocol (KIP-848), as its records say it is.

A member has an *epoch*: the target assignment that it has reached, or is on its way from. What it is assigned, it may
read. What it is to give up is *pending revocation*: nobody else gets it before the member has said that it let go.

============= ==================================================================================================
STABLE        it has what the target gives it
UNREVOKED     it must let go of partitions first; until then it stays at its old epoch
UNRELEASED    it is at the target's epoch, and waits for partitions that others have not let go of yet
============= ==================================================================================================

Members are replaced, not changed: applying a record makes a new one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any
from uuid import UUID

from headrace.groups.assignment import Assignment, of_wire, together

#: Epochs in a heartbeat that are none: the member joins, leaves, or (a static one) will be back.
JOINS = 0
LEAVES = -1
LEAVES_FOR_A_WHILE = -2

NO_REBALANCE_TIMEOUT = -1


class MemberState(IntEnum):
    """The numbers are those of the records."""

    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class ClassicSide:
    """What is known of a member that still speaks the classic protocol (online migration)."""

    session_timeout_ms: int
    #: Names with their metadata, the preferred first.
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    member_id: str
    # What it says of itself.
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = None
    rebalance_timeout_ms: int = NO_REBALANCE_TIMEOUT
    server_assignor: str | None = None
    classic: ClassicSide | None = None
    # Where it is.
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=dict)
    pending_revocation: Assignment = field(default_factory=dict)
    #: By topic and partition, at which epoch it was assigned what it holds; what is missing, at its present one.
    since: Mapping[UUID, Mapping[int, int]] = field(default_factory=dict)

    @property
    def holds(self) -> Assignment:
        """What nobody else may have yet."""
        return together(self.assigned, self.pending_revocation)

    @property
    def is_away(self) -> bool:
        """A static member that said it will be back."""
        return self.epoch == LEAVES_FOR_A_WHILE

    @property
    def is_subscribed(self) -> bool:
        return bool(self.topic_names or self.topic_regex)

    def has_subscription_of(self, other: "ConsumerMember") -> bool:
        return self.topic_names == other.topic_names and (self.topic_regex or "") == (other.topic_regex or "")

    def says_the_same(self, other: "ConsumerMember") -> bool:
        """Whether the other's description, not its place, is this one's."""
        return other.described_as(self) == other

    def described_as(self, other: "ConsumerMember") -> "ConsumerMember":
        """At this place, what the other says of itself."""
        return replace(
            other,
            member_id=self.member_id,
            epoch=self.epoch,
            previous_epoch=self.previous_epoch,
            state=self.state,
            assigned=self.assigned,
            pending_revocation=self.pending_revocation,
            since=self.since,
        )

    def assigned_at(self, topic_id: UUID, partition: int) -> int:
        """The epoch at which it was assigned a partition that it holds."""
        return self.since.get(topic_id, {}).get(partition, self.epoch)

    def described_by(self, value: Any) -> "ConsumerMember":
        """With what a ConsumerGroupMemberMetadataValue says."""
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
            classic=None
            if classic is None
            else ClassicSide(
                classic.session_timeout_ms, tuple((each.name, each.metadata) for each in classic.supported_protocols)
            ),
        )

    def placed_by(self, value: Any) -> "ConsumerMember":
        """Where a ConsumerGroupCurrentMemberAssignmentValue says it is."""
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=_state_of(value.state),
            assigned=of_wire(value.assigned_partitions),
            pending_revocation=of_wire(value.partitions_pending_revocation),
            since=_epochs_of([*value.assigned_partitions, *value.partitions_pending_revocation], value.member_epoch),
        )


def _epochs_of(topics: Iterable[Any], member_epoch: int) -> Mapping[UUID, Mapping[int, int]]:
    """Before KIP-1251 no epochs were recorded."""
    epochs: dict[UUID, dict[int, int]] = {}
    for topic in topics:
        recorded = topic.assignment_epochs or (member_epoch,) * len(topic.partitions)
        epochs.setdefault(topic.topic_id, {}).update(zip(topic.partitions, recorded, strict=False))
    return epochs


def _state_of(number: int) -> MemberState:
    """A newer broker may have more states than we know."""
    return MemberState(number) if number in MemberState._value2member_map_ else MemberState.UNKNOWN
