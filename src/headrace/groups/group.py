"""The interface of a group, whichever protocol its members use, and the requests of the classic protocol.

Every group answers the four requests of the classic protocol, because a group of the consumer protocol may have members
of the classic protocol while it migrates from one protocol to the other (KIP-848).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.replication.journal import KeyValue

NO_GENERATION = -1
#: The member id in a request of a client that has no member id yet.
UNKNOWN_MEMBER = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """The fields of a JoinGroup request that the coordinator uses."""

    member_id: str
    protocol_type: str
    #: Names of assignment strategies with their metadata, the preferred one first.
    protocols: tuple[tuple[str, bytes], ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    #: The coordinator first gives a new member its id, and the member joins again with the id (KIP-394).
    needs_member_id: bool = False
    #: The member understands a response that makes it the leader and tells it to keep the assignment (KIP-814).
    may_skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinResponse:
    """The response to a JoinGroup request."""

    member_id: str
    error: ErrorCode = ErrorCode.none
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = ""
    skip_assignment: bool = False
    #: Only for the leader: member id, instance id and metadata of each member.
    members: tuple[tuple[str, str | None, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """The fields of a SyncGroup request. Protocol type and name are None in versions that do not have them."""

    member_id: str
    generation_id: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    #: Only from the leader: the assignment of each member.
    assignments: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResponse:
    """The response to a SyncGroup request."""

    error: ErrorCode = ErrorCode.none
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavingMember:
    """One member in a LeaveGroup request."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


class Group(Protocol):
    """A group of either protocol."""

    @property
    def group_id(self) -> str: ...
    @property
    def kind(self) -> str:
        """``classic`` or ``consumer``."""
        ...

    @property
    def state_name(self) -> str:
        """Kafka's word for the group's state."""
        ...

    @property
    def protocol_type(self) -> str | None:
        """``consumer`` for consumers. None for a group that has only offsets."""
        ...

    @property
    def is_empty(self) -> bool:
        """Tells whether the group has no members."""
        ...

    # -- offsets

    def check_commit(
        self, member_id: str, generation_or_epoch: int, instance_id: str | None, *, is_transactional: bool = False
    ) -> None:
        """Checks that a client may commit offsets now. A commit that may be made restarts the member's session.

        :raises KafkaError: if the client may not commit.
        """
        ...

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """
        :raises KafkaError: if the member may not read the group's offsets.
        """
        ...

    def check_offset_delete(self) -> None:
        """
        :raises NonEmptyGroup: if no offset of the group may be deleted, because the topics of its members are unknown.
        """
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Tells whether a member reads the topic. Then the topic's offsets are in use."""
        ...

    def expires_from_ms(self, commit_timestamp_ms: int) -> int | None:
        """The wall time from which the retention of an offset counts. None while the group's offsets are in use."""
        ...

    # -- loading and unloading

    def on_loaded(self) -> None:
        """Starts the timers of the members, after all records of the partition were applied."""
        ...

    def unload(self, error: type[KafkaError]) -> None:
        """Stops the group's timers and answers every waiting request with the error."""
        ...

    def tombstones(self) -> list[KeyValue]:
        """The records that delete the group from the log. They do not delete the group's offsets."""
        ...

    # -- the classic protocol

    def join(self, request: JoinRequest, respond: Callable[[JoinResponse], None]) -> None:
        """Adds a member. Calls ``respond`` once, now or later, or raises.

        :raises KafkaError: if the member may not join. Then ``respond`` is not called.
        """
        ...

    def sync(self, request: SyncRequest, respond: Callable[[SyncResponse], None]) -> None: ...
    def heartbeat(self, member_id: str, generation_id: int, instance_id: str | None) -> None: ...
    def leave(self, leaving: Sequence[LeavingMember]) -> list[ErrorCode]: ...
