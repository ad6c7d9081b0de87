"""Holds the members of a classic group: their ids, the leader, the pending member ids, and the protocols they support.

The first member that joins is the leader. When the leader goes, the member that has been in the group for longest
becomes the leader.

The members elect the assignment strategy (the *protocol*). Candidates are the protocols that every member supports.
Each member votes for the first candidate in its own list. The protocol with the most votes wins; if votes are equal,
the protocol that was voted for first wins.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headrace.groups.group import JoinRequest, JoinResponse, SyncResponse
from headrace.protocol.errors import ErrorCode
from headrace.runtime.timer import TimerTask


@dataclass(slots=True, kw_only=True, eq=False)
class ClassicMember:
    """One member of a classic group."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    #: Names of assignment strategies with their metadata, the preferred one first.
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    #: The member has not received its first generation yet, so it cannot send heartbeats.
    is_new: bool = False
    #: Sends the response to the member's JoinGroup or SyncGroup that waits; None if none waits.
    awaiting_join: Callable[[JoinResponse], None] | None = None
    awaiting_sync: Callable[[SyncResponse], None] | None = None
    session: TimerTask | None = None

    @property
    def is_waiting(self) -> bool:
        """Tells whether a request of the member waits for its response."""
        return self.awaiting_join is not None or self.awaiting_sync is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """The metadata that the member sent for a protocol; empty if the member does not support the protocol."""
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")

    def answer_join(self, response: JoinResponse) -> None:
        """Answers the member's JoinGroup, if one waits."""
        respond, self.awaiting_join = self.awaiting_join, None
        if respond is not None:
            respond(response)

    def answer_sync(self, response: SyncResponse) -> None:
        """Answers the member's SyncGroup, if one waits."""
        respond, self.awaiting_sync = self.awaiting_sync, None
        if respond is not None:
            respond(response)

    def answer_error(self, error: ErrorCode) -> None:
        """Answers every waiting request of the member with an error."""
        self.answer_join(JoinResponse(member_id=self.member_id, error=error))
        self.answer_sync(SyncResponse(error=error))


class ClassicMembers:
    """The members of one group, in the order in which they joined."""

    def __init__(self) -> None:
        self._members: dict[str, ClassicMember] = {}
        self._ids_by_instance: dict[str, str] = {}
        #: For each protocol, how many members support it.
        self._supporters: Counter[str] = Counter()
        self.leader_id: str | None = None
        #: Member ids that clients were given and have not joined with yet, each with its timeout (KIP-394).
        self.pending_ids: dict[str, TimerTask] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[ClassicMember]:
        """In the order in which the members joined."""
        return iter(list(self._members.values()))

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def get(self, member_id: str) -> ClassicMember | None:
        return self._members.get(member_id)

    def by_instance_id(self, instance_id: str) -> ClassicMember | None:
        member_id = self._ids_by_instance.get(instance_id)
        return None if member_id is None else self._members[member_id]

    # -- changes ----------------------------------------------------------------------------------------------------

    def add(self, member: ClassicMember) -> None:
        assert member.member_id not in self._members, member.member_id
        self._members[member.member_id] = member
        if member.instance_id is not None:
            self._ids_by_instance[member.instance_id] = member.member_id
        self._supporters.update(dict(member.protocols).keys())
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member: ClassicMember) -> None:
        del self._members[member.member_id]
        if member.instance_id is not None:
            del self._ids_by_instance[member.instance_id]
        self._supporters.subtract(dict(member.protocols).keys())
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self._members), None)

    def update(self, member: ClassicMember, request: JoinRequest) -> None:
        """Stores the protocols and timeouts that a member sends when it joins again."""
        self._supporters.subtract(dict(member.protocols).keys())
        member.protocols = request.protocols
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        self._supporters.update(dict(member.protocols).keys())

    def replace_member_id(self, member: ClassicMember, member_id: str) -> None:
        """Gives a static member that has restarted a new member id. The member keeps its place in the order."""
        assert member.instance_id is not None
        old_id, member.member_id = member.member_id, member_id
        self._members = {each.member_id: each for each in self._members.values()}
        self._ids_by_instance[member.instance_id] = member_id
        if self.leader_id == old_id:
            self.leader_id = member_id

    # -- questions about all members --------------------------------------------------------------------------------

    @property
    def joining_count(self) -> int:
        """How many members have joined the generation that is being prepared."""
        return sum(member.awaiting_join is not None for member in self._members.values())

    @property
    def have_all_joined(self) -> bool:
        """Tells whether all members have joined the generation that is being prepared, and no member id is pending."""
        return not self.pending_ids and all(member.awaiting_join is not None for member in self._members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members: the time for which the others wait for the slowest member."""
        return max((member.rebalance_timeout_ms for member in self._members.values()), default=0)

    def elect_joined_leader(self) -> bool:
        """Makes a member that has joined the leader. Returns False if no member has joined."""
        leader = self._members.get(self.leader_id or "")
        if leader is not None and leader.awaiting_join is not None:
            return True
        joined = next((member.member_id for member in self if member.awaiting_join is not None), None)
        if joined is not None:
            self.leader_id = joined
        return joined is not None

    def support_any_of(self, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        """Tells whether all members support one of these protocols."""
        return any(self._supporters[name] == len(self._members) for name, _ in protocols)

    def elected_protocol(self) -> str:
        """The protocol that wins the members' vote."""
        count = len(self._members)
        votes = Counter(
            next(name for name, _ in member.protocols if self._supporters[name] == count)
            for member in self._members.values()
        )
        return votes.most_common(1)[0][0]
