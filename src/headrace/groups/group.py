"""What every group can be asked, whichever protocol its members speak.

The classic protocol's four requests are asked of any group, because members that speak it may be in a group of the
consumer protocol while a group moves from one to the other (KIP-848).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.replication.journal import KeyValue

NO_GENERATION = -1
UNKNOWN_MEMBER = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """What a JoinGroup says of a member."""

    member_id: str
    protocol_type: str
    #: Names with their metadata, the preferred first.
    protocols: tuple[tuple[str, bytes], ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    #: A new member is first given its id, and joins with that (KIP-394).
    needs_member_id: bool = False
    #: The member understands that it leads and yet has nothing to assign (KIP-814).
    may_skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The answer to a JoinGroup."""

    member_id: str
    error: ErrorCode = ErrorCode.none
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = ""
    skip_assignment: bool = False
    #: For the leader: id, instance id and metadata of each member.
    members: tuple[tuple[str, str | None, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Syncing:
    """What a SyncGroup says; protocol type and name are None where the member's version has none."""

    member_id: str
    generation_id: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    #: From the leader: what each member is to read.
    assignments: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    error: ErrorCode = ErrorCode.none
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    member_id: str
    instance_id: str | None = None
    reason: str | None = None


class Group(Protocol):
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
        """``consumer`` for consumers; None for a group that only keeps offsets."""
        ...

    @property
    def is_empty(self) -> bool:
        """Has no members."""
        ...

    # -- offsets

    def check_commit(
        self, member_id: str, generation_or_epoch: int, instance_id: str | None, *, is_transactional: bool = False
    ) -> None:
        """
        :raises KafkaError: if who says this may not commit now. A commit that may is a sign of life.
        """
        ...

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """
        :raises KafkaError: if the member may not read the group's offsets.
        """
        ...

    def check_offset_delete(self) -> None:
        """
        :raises NonEmptyGroup: if none of the group's offsets may be deleted, because nobody knows what it reads.
        """
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic, so that its offsets are in use."""
        ...

    def expires_from_ms(self, commit_timestamp_ms: int) -> int | None:
        """From when the retention of an offset counts, in wall time; None while the group's offsets are in use."""
        ...

    # -- life

    def loaded(self) -> None:
        """All records were applied: members are given time to show up."""
        ...

    def close(self, error: type[KafkaError]) -> None:
        """The group leaves this coordinator: timers stop, and whoever waits is told the error."""
        ...

    def tombstones(self) -> list[KeyValue]:
        """What takes the group back out of the log, its offsets excepted."""
        ...

    # -- the classic protocol

    def join(self, joining: Joining, respond: Callable[[Joined], None]) -> None:
        """``respond`` is called once, now or later; not if this raises.

        :raises KafkaError: if the member may not join.
        """
        ...

    def sync(self, syncing: Syncing, respond: Callable[[Synced], None]) -> None: ...
    def heartbeat(self, member_id: str, generation_id: int, instance_id: str | None) -> None: ...
    def leave(self, leaving: Sequence[Leaving]) -> list[ErrorCode]: ...
