"""What a ConsumerGroupHeartbeat says and what it is answered: joining, living and leaving are all heartbeats (KIP-848).

A member says in full what it wants when it joins and after an error, and otherwise only what has changed; None (or -1
for the timeout) means no change. It says what it owns when that has changed.
"""

from collections.abc import Container
from dataclasses import dataclass

from headrace.groups.assignment import Assignment
from headrace.groups.consumer_member import JOINS, LEAVES, LEAVES_FOR_A_WHILE, NO_REBALANCE_TIMEOUT
from headrace.protocol.errors import InvalidRequest, UnsupportedAssignor


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NO_REBALANCE_TIMEOUT
    topic_names: frozenset[str] | None = None
    #: An empty one takes back the one before.
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Assignment | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def leaves(self) -> bool:
        return self.epoch in (LEAVES, LEAVES_FOR_A_WHILE)

    @property
    def is_full(self) -> bool:
        """It has forgotten, or never knew, what it was told: it is to be told all of it."""
        return self.epoch == JOINS or (
            self.rebalance_timeout_ms != NO_REBALANCE_TIMEOUT
            and (self.topic_names is not None or self.topic_regex is not None)
            and self.owned is not None
        )

    def check(self, assignors: Container[str], *, makes_its_id: bool) -> None:
        """
        :param makes_its_id: whether members of that version make their ids themselves, so that one must be there.
        :raises InvalidRequest, UnsupportedAssignor: if this is no heartbeat.
        """
        if not self.member_id and (makes_its_id or self.epoch != JOINS):
            raise InvalidRequest("MemberId is empty")
        if self.epoch < LEAVES_FOR_A_WHILE:
            raise InvalidRequest(f"MemberEpoch is {self.epoch}, below -2")
        if self.instance_id == "" or self.rack_id == "":
            raise InvalidRequest("InstanceId or RackId is empty; leave it null instead")
        if self.epoch == LEAVES_FOR_A_WHILE and self.instance_id is None:
            raise InvalidRequest("InstanceId is null, but only a static member may leave for a while (MemberEpoch -2)")
        if self.epoch == JOINS:
            self._check_joining()
        if self.server_assignor is not None and self.server_assignor not in assignors:
            raise UnsupportedAssignor(f"there is no assignor {self.server_assignor!r}")

    def _check_joining(self) -> None:
        if self.rebalance_timeout_ms == NO_REBALANCE_TIMEOUT:
            raise InvalidRequest("RebalanceTimeoutMs is missing, but a member that joins (MemberEpoch 0) must give it")
        if self.owned is None or self.owned:
            raise InvalidRequest("TopicPartitions is not empty, but a member that joins (MemberEpoch 0) owns none")
        if self.topic_names is None and self.topic_regex is None:
            raise InvalidRequest("SubscribedTopicNames and SubscribedTopicRegex are null; a joining member needs one")


@dataclass(frozen=True, slots=True, kw_only=True)
class Beaten:
    """The answer."""

    member_id: str | None
    epoch: int
    heartbeat_interval_ms: int = 0
    #: None: as it was told before.
    assignment: Assignment | None = None
