"""The members of a classic group: who they are, who leads, who has been promised a place, and what all of them speak.

The first to join leads; when the leader goes, the one that has been there longest follows. The assignment strategy is
elected: candidates are the protocols that every member supports, each member votes for the first candidate of its own
list, and the most votes win (of equals, the one that was voted for first).
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headrace.groups.group import Joined, Joining, Synced
from headrace.protocol.errors import ErrorCode
from headrace.runtime.timer import TimerTask


@dataclass(slots=True, kw_only=True, eq=False)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    #: Names with their metadata, the preferred first.
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    #: Has not been told its first generation yet, and so cannot send heartbeats.
    is_new: bool = False
    #: Who waits for the answer to a JoinGroup or SyncGroup of this member.
    awaiting_join: Callable[[Joined], None] | None = None
    awaiting_sync: Callable[[Synced], None] | None = None
    session: TimerTask | None = None

    @property
    def is_waiting(self) -> bool:
        return self.awaiting_join is not None or self.awaiting_sync is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")

    def answer_join(self, joined: Joined) -> None:
        respond, self.awaiting_join = self.awaiting_join, None
        if respond is not None:
            respond(joined)

    def answer_sync(self, synced: Synced) -> None:
        respond, self.awaiting_sync = self.awaiting_sync, None
        if respond is not None:
            respond(synced)

    def refuse(self, error: ErrorCode) -> None:
        """Whoever waits for an answer gets the error."""
        self.answer_join(Joined(member_id=self.member_id, error=error))
        self.answer_sync(Synced(error=error))

    def stop_session(self) -> None:
        if self.session is not None:
            self.session.cancel()
            self.session = None


class Members:
    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self._ids_by_instance: dict[str, str] = {}
        #: How many members support each protocol.
        self._supporters: Counter[str] = Counter()
        self.leader_id: str | None = None
        #: Ids that were given out, and whose members have not joined with them yet; each with its time limit.
        self.promised: dict[str, TimerTask] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        """In the order in which they came."""
        return iter(list(self._members.values()))

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def get(self, member_id: str) -> Member | None:
        return self._members.get(member_id)

    def of_instance(self, instance_id: str) -> Member | None:
        member_id = self._ids_by_instance.get(instance_id)
        return None if member_id is None else self._members[member_id]

    # -- coming and going -------------------------------------------------------------------------------------------

    def add(self, member: Member) -> None:
        assert member.member_id not in self._members, member.member_id
        self._members[member.member_id] = member
        if member.instance_id is not None:
            self._ids_by_instance[member.instance_id] = member.member_id
        self._supporters.update(dict(member.protocols).keys())
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member: Member) -> None:
        del self._members[member.member_id]
        if member.instance_id is not None:
            del self._ids_by_instance[member.instance_id]
        self._supporters.subtract(dict(member.protocols).keys())
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self._members), None)

    def update(self, member: Member, joining: Joining) -> None:
        """What a member says of itself when it joins again."""
        self._supporters.subtract(dict(member.protocols).keys())
        member.protocols = joining.protocols
        member.session_timeout_ms = joining.session_timeout_ms
        member.rebalance_timeout_ms = joining.rebalance_timeout_ms
        self._supporters.update(dict(member.protocols).keys())

    def rename(self, member: Member, member_id: str) -> None:
        """A static member was started anew: it keeps its place under another id."""
        assert member.instance_id is not None
        old_id, member.member_id = member.member_id, member_id
        self._members = {each.member_id: each for each in self._members.values()}
        self._ids_by_instance[member.instance_id] = member_id
        if self.leader_id == old_id:
            self.leader_id = member_id

    # -- all of them ------------------------------------------------------------------------------------------------

    @property
    def joining_count(self) -> int:
        return sum(member.awaiting_join is not None for member in self._members.values())

    @property
    def have_all_joined(self) -> bool:
        return not self.promised and all(member.awaiting_join is not None for member in self._members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """The slowest member decides how long the others wait for it."""
        return max((member.rebalance_timeout_ms for member in self._members.values()), default=0)

    def elect_joined_leader(self) -> bool:
        """Sees to it that the leader is one that has joined; False if nobody has."""
        leader = self._members.get(self.leader_id or "")
        if leader is not None and leader.awaiting_join is not None:
            return True
        joined = next((member.member_id for member in self if member.awaiting_join is not None), None)
        if joined is not None:
            self.leader_id = joined
        return joined is not None

    def support_any_of(self, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        """Whether all members support one of these."""
        return any(self._supporters[name] == len(self._members) for name, _ in protocols)

    def elected_protocol(self) -> str:
        count = len(self._members)
        votes = Counter(
            next(name for name, _ in member.protocols if self._supporters[name] == count)
            for member in self._members.values()
        )
        return votes.most_common(1)[0][0]
