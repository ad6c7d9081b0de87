"""Holds the state, the generation and the members of one classic group. No timers and no records: only values."""

from headrace.groups.classic.members import ClassicMember, ClassicMembers
from headrace.groups.classic.states import NEXT, ClassicGroupState
from headrace.groups.embedded_protocol import subscribed_topics
from headrace.groups.group import JoinResponse, SyncResponse

#: The protocol type of consumers. Kafka Connect, for example, has another one.
CONSUMER_PROTOCOL_TYPE = "consumer"


class ClassicGroupMetadata:
    """One classic group, as its requests and its rebalances change it."""

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.group_id = group_id
        self.state = ClassicGroupState.EMPTY
        #: When the group entered its state, in wall time. -1 if the record of a loaded group does not say when.
        self.state_since_ms = now_ms
        self.generation_id = 0
        self.protocol_type: str | None = None
        #: The assignment strategy that the members have elected for this generation.
        self.protocol_name: str | None = None
        self.members = ClassicMembers()
        #: None if the topics are not known: the members are not consumers, or there is no generation yet.
        self.subscribed_topics: frozenset[str] | None = None

    def transition_to(self, state: ClassicGroupState, now_ms: int) -> None:
        """Enters a state that the table of transitions allows."""
        assert state in NEXT[self.state], f"{self.group_id}: {self.state} -> {state}"
        self.state = state
        self.state_since_ms = now_ms

    def read_subscriptions(self) -> None:
        """Sets ``subscribed_topics`` from the metadata of the members."""
        self.subscribed_topics = (
            subscribed_topics(member.metadata(self.protocol_name) for member in self.members)
            if self.protocol_type == CONSUMER_PROTOCOL_TYPE
            else None
        )

    def join_response(self, member: ClassicMember) -> JoinResponse:
        """The response that makes a member part of this generation. Only the leader gets the list of members."""
        name = self.protocol_name
        is_leader = member.member_id == self.members.leader_id
        return JoinResponse(
            member_id=member.member_id,
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=name,
            leader_id=self.members.leader_id or "",
            members=tuple((each.member_id, each.instance_id, each.metadata(name)) for each in self.members)
            if is_leader
            else (),
        )

    def sync_response(self, member: ClassicMember) -> SyncResponse:
        """The response that tells a member its assignment."""
        return SyncResponse(
            protocol_type=self.protocol_type, protocol_name=self.protocol_name, assignment=member.assignment
        )
