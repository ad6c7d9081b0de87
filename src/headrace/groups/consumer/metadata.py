"""Holds what the records of a group of the consumer protocol say, and answers questions about it.

The metadata changes only by :meth:`ConsumerGroupMetadata.apply`, both when the coordinator has just written a record
and when it loads the log. After compaction the records of a group may come in an order in which they were never
written. So each record is applied by itself: a member's progress may come before its description.

The group's state follows from the epochs::

    Empty        the group has no members
    Assigning    the group epoch is higher than the epoch of the target assignment
    Reconciling  some member has not reached the target assignment
    Stable       all members have reached the target assignment
    Dead         this coordinator has unloaded the group
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from enum import Enum
from uuid import UUID

from headrace.groups.consumer.assignment import NO_PARTITIONS, Assignment, from_wire, pairs
from headrace.groups.consumer.member import ConsumerMember, ConsumerMemberState
from headrace.protocol.errors import FencedInstanceId, UnknownMemberId
from headrace.protocol.internal_records import InternalRecord, RecordType


class ConsumerGroupState(Enum):
    """The state of a group of the consumer protocol. The values are Kafka's words."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerGroupMetadata:
    """The epochs, the members and the target assignment of one group."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        #: The group epoch: it rises whenever a member or a subscribed topic changes.
        self.epoch = 0
        #: A hash of the subscribed topics, to notice that one has changed.
        self.metadata_hash = 0
        #: The group epoch for which the target assignment was computed.
        self.target_epoch = 0
        self.target_made_at_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        #: The target assignment, by member ids.
        self.target: dict[str, Assignment] = {}
        #: For each regular expression of a member, the topics that it matched.
        self.regexes: dict[str, frozenset[str]] = {}
        self._ids_by_instance: dict[str, str] = {}
        self._holders: dict[tuple[UUID, int], str] = {}

    # -- questions --------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        is_reconciled = all(
            member.state is ConsumerMemberState.STABLE and member.epoch == self.target_epoch
            for member in self.members.values()
        )
        return ConsumerGroupState.STABLE if is_reconciled else ConsumerGroupState.RECONCILING

    def by_instance_id(self, instance_id: str) -> ConsumerMember | None:
        member_id = self._ids_by_instance.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def member(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """
        :raises UnknownMemberId: if the group has no such member.
        :raises FencedInstanceId: if another member has taken over the instance id.
        """
        if instance_id is None:
            member = self.members.get(member_id)
        else:
            member = self.by_instance_id(instance_id)
            if member is not None and member.member_id != member_id:
                raise FencedInstanceId(
                    f"the instance id {instance_id!r} of the group {self.group_id!r} belongs to the member "
                    f"{member.member_id!r} now, not to {member_id!r}"
                )
        if member is None:
            raise UnknownMemberId(f"the group {self.group_id!r} has no member {member_id!r}")
        return member

    def target_of(self, member_id: str) -> Assignment:
        """The partitions that the target assignment gives to a member."""
        return self.target.get(member_id, NO_PARTITIONS)

    def is_free_for(self, member_id: str, topic_id: UUID, partition: int) -> bool:
        """Tells whether no other member holds the partition."""
        return self._holders.get((topic_id, partition), member_id) == member_id

    def is_subscribed_to(self, topic: str) -> bool:
        """Tells whether a member subscribes to the topic, by its name or by a regular expression."""
        return any(topic in member.topic_names for member in self.members.values()) or any(
            topic in topics for topics in self.regexes.values()
        )

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """The names of the topics that a member subscribes to."""
        if member.topic_regex:
            return member.topic_names | self.regexes.get(member.topic_regex, frozenset())
        return member.topic_names

    def preferred_assignor(self, among: Container[str]) -> str | None:
        """The assignor that most members ask for; if votes are equal, the first by name. None if no member asks."""
        votes = Counter(
            member.server_assignor
            for member in self.members.values()
            if member.server_assignor is not None and member.server_assignor in among
        )
        return min(votes, key=lambda name: (-votes[name], name)) if votes else None

    # -- records ----------------------------------------------------------------------------------------------------

    def apply(self, record: InternalRecord) -> None:
        """Changes the metadata as a record says."""
        value = record.value
        match record.type:
            case RecordType.CONSUMER_GROUP_METADATA:
                self.epoch = 0 if value is None else value.epoch
                self.metadata_hash = 0 if value is None else value.metadata_hash
            case RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA:
                self.target_epoch = 0 if value is None else value.assignment_epoch
                self.target_made_at_ms = 0 if value is None else value.assignment_timestamp
            case RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER:
                if value is None:
                    self.target.pop(record.key.member_id, None)
                else:
                    self.target[record.key.member_id] = from_wire(value.topic_partitions)
            case RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION:
                if value is None:
                    self.regexes.pop(record.key.regular_expression, None)
                else:
                    self.regexes[record.key.regular_expression] = frozenset(value.topics)
            case RecordType.CONSUMER_GROUP_MEMBER_METADATA | RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT:
                self._apply_member(record)

    def _apply_member(self, record: InternalRecord) -> None:
        member_id: str = record.key.member_id
        former = self.members.get(member_id)
        if former is None and record.value is None:
            return
        member = former or ConsumerMember(member_id=member_id)
        if record.type is RecordType.CONSUMER_GROUP_MEMBER_METADATA:
            self._replace(former, None if record.value is None else member.with_description_record(record.value))
        elif record.value is not None:
            self._replace(former, member.with_progress_record(record.value))
        else:
            self._replace(former, member.with_progress_of(ConsumerMember(member_id=member_id)))

    def _replace(self, former: ConsumerMember | None, member: ConsumerMember | None) -> None:
        if former is not None:
            self._remove_from_indexes(former)
        if member is None:
            assert former is not None
            del self.members[former.member_id]
            return
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._ids_by_instance[member.instance_id] = member.member_id
        self._holders.update(dict.fromkeys(pairs(member.holds), member.member_id))

    def _remove_from_indexes(self, member: ConsumerMember) -> None:
        for pair in pairs(member.holds):
            if self._holders.get(pair) == member.member_id:
                del self._holders[pair]
        if member.instance_id is not None and self._ids_by_instance.get(member.instance_id) == member.member_id:
            del self._ids_by_instance[member.instance_id]


def subscribed_names(members: Iterable[ConsumerMember], regexes: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """The names of all topics that the members subscribe to, including topics that do not exist."""
    return frozenset(_subscribed_names(list(members), regexes))


def _subscribed_names(members: list[ConsumerMember], regexes: Mapping[str, frozenset[str]]) -> Iterator[str]:
    for names in {member.topic_names for member in members}:
        yield from names
    for regex in {member.topic_regex for member in members if member.topic_regex}:
        yield from regexes.get(regex, ())
