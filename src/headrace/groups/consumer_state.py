"""What the records of a group of the consumer protocol say, and what follows from it.

It changes by :meth:`ConsumerState.apply` alone, whether a record was just written or is read again at a start. After
compaction records come in an order in which they were never written, so each is taken as it comes: a member may be told
where it is before it is told who it is.

The group's state follows from the epochs::

    Empty        no members
    Assigning    the group epoch is past that of the target assignment
    Reconciling  some member is not where the target wants it
    Stable       all are
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from uuid import UUID

from headrace.groups.assignment import NOTHING, Assignment, each, of_wire
from headrace.groups.consumer_member import ConsumerMember, MemberState
from headrace.protocol.internal_records import InternalRecord, RecordType

EMPTY, ASSIGNING, RECONCILING, STABLE = "Empty", "Assigning", "Reconciling", "Stable"


class ConsumerState:
    def __init__(self) -> None:
        self.epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        self.target_made_at_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.target: dict[str, Assignment] = {}
        #: For each expression, the topics that it matched.
        self.regexes: dict[str, frozenset[str]] = {}
        self._ids_by_instance: dict[str, str] = {}
        self._holders: dict[tuple[UUID, int], str] = {}

    # -- questions --------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        if not self.members:
            return EMPTY
        if self.epoch > self.target_epoch:
            return ASSIGNING
        settled = all(
            member.state is MemberState.STABLE and member.epoch == self.target_epoch for member in self.members.values()
        )
        return STABLE if settled else RECONCILING

    def of_instance(self, instance_id: str) -> ConsumerMember | None:
        member_id = self._ids_by_instance.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def is_free_for(self, member_id: str, topic_id: UUID, partition: int) -> bool:
        return self._holders.get((topic_id, partition), member_id) == member_id

    def reads(self, topic: str) -> bool:
        return any(topic in member.topic_names for member in self.members.values()) or any(
            topic in topics for topics in self.regexes.values()
        )

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        if member.topic_regex:
            return member.topic_names | self.regexes.get(member.topic_regex, frozenset())
        return member.topic_names

    def preferred_assignor(self, among: Container[str]) -> str | None:
        """What most of those members ask for that ask at all; of equals, the first by name."""
        votes = Counter(
            member.server_assignor
            for member in self.members.values()
            if member.server_assignor is not None and member.server_assignor in among
        )
        return min(votes, key=lambda name: (-votes[name], name)) if votes else None

    # -- records ----------------------------------------------------------------------------------------------------

    def apply(self, record: InternalRecord) -> None:
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
                    self.target[record.key.member_id] = of_wire(value.topic_partitions)
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
            self._put(former, None if record.value is None else member.described_by(record.value))
        elif record.value is not None:
            self._put(former, member.placed_by(record.value))
        else:
            nowhere = ConsumerMember(member_id=member_id)
            self._put(former, nowhere.described_as(member))

    def _put(self, former: ConsumerMember | None, member: ConsumerMember | None) -> None:
        if former is not None:
            self._let_go(former)
        if member is None:
            assert former is not None
            del self.members[former.member_id]
            return
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._ids_by_instance[member.instance_id] = member.member_id
        self._holders.update(dict.fromkeys(each(member.holds), member.member_id))

    def _let_go(self, member: ConsumerMember) -> None:
        for pair in each(member.holds):
            if self._holders.get(pair) == member.member_id:
                del self._holders[pair]
        if member.instance_id is not None and self._ids_by_instance.get(member.instance_id) == member.member_id:
            del self._ids_by_instance[member.instance_id]

    def target_of(self, member_id: str) -> Assignment:
        return self.target.get(member_id, NOTHING)


def names_read(members: Iterable[ConsumerMember], regexes: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """The topics that such members read, those that do not exist included."""
    return frozenset(_names_read(list(members), regexes))


def _names_read(members: list[ConsumerMember], regexes: Mapping[str, frozenset[str]]) -> Iterator[str]:
    for names in {member.topic_names for member in members}:
        yield from names
    for regex in {member.topic_regex for member in members if member.topic_regex}:
        yield from regexes.get(regex, ())
