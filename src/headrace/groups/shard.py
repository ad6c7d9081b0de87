"""The groups and offsets of one partition of ``__consumer_offsets``.

What must outlast a restart changes by records only: :meth:`GroupShard.write` appends them and then applies them, and
loading applies all that are in the log. What need not (who is joining, timers) lives in the groups and is lost with the
broker, as in Kafka: clients then join anew. A crash between an append and its answer leaves a record that nobody was
told of, which its client repeats.

A classic group changes its own state and appends without applying (:meth:`GroupShard.append`): its record is a
photograph of what it has become. A group of the consumer protocol (KIP-848) has a record for each part of it, and
changes by them.
"""

from collections.abc import Callable, Iterator, Sequence

from headrace.groups.classic import ClassicGroup
from headrace.groups.consumer import ConsumerGroup
from headrace.groups.consumer_heartbeat import Beat, Beaten
from headrace.groups.consumer_member import JOINS
from headrace.groups.consumer_records import RECORD_TYPES as CONSUMER_RECORD_TYPES
from headrace.groups.context import GroupContext
from headrace.groups.group import UNKNOWN_MEMBER, Group, Joined, Joining
from headrace.groups.migration import downgraded, should_downgrade, upgraded
from headrace.groups.offsets import KEY_TYPES as OFFSET_KEY_TYPES
from headrace.groups.offsets import Offsets
from headrace.patterns import compiled_pattern
from headrace.protocol.errors import (
    CoordinatorNotAvailable,
    GroupIdNotFound,
    InvalidGroupId,
    InvalidSessionTimeout,
    NonEmptyGroup,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMemberId,
)
from headrace.protocol.internal_records import InternalRecord, InternalTopic, RecordType, decode
from headrace.protocol.record_body import Record
from headrace.protocol.records import NO_PRODUCER_ID, BatchHeader
from headrace.replication.journal import Journal, KeyValue

_COMMIT_MARKER = b"\x00\x00\x00\x01"
_ABORT_MARKER = b"\x00\x00\x00\x00"
_NO_EPOCH = -1


class GroupShard:
    def __init__(self, context: GroupContext, journal: Journal) -> None:
        self.context = context
        self.groups: dict[str, Group] = {}
        #: Whoever commits without being a member makes a group that only keeps offsets.
        self.offsets = Offsets(context, on_first=self.classic_group)
        self._journal = journal

    @property
    def index(self) -> int:
        return self._journal.index

    # -- records ----------------------------------------------------------------------------------------------------

    def write(
        self, records: Sequence[KeyValue], *, producer_id: int = NO_PRODUCER_ID, producer_epoch: int = _NO_EPOCH
    ) -> None:
        """Appends records and applies them; within a transaction, if a producer is given.

        :raises StorageError: if they could not be appended. Then nothing has changed.
        """
        self.append(records, producer_id=producer_id, producer_epoch=producer_epoch)
        self._apply_all(records, producer_id)

    def _apply_all(self, records: Sequence[KeyValue], producer_id: int) -> None:
        for key, value in records:
            self._apply_bytes(key, value, producer_id)

    def append(
        self, records: Sequence[KeyValue], *, producer_id: int = NO_PRODUCER_ID, producer_epoch: int = _NO_EPOCH
    ) -> None:
        """Appends what is true already.

        :raises StorageError: if it could not be.
        """
        self._journal.write(records, producer_id=producer_id, producer_epoch=producer_epoch)

    def load(self) -> Iterator[int]:
        """Applies the log, a batch a step; each step gives how many records it had."""
        for header, records in self._journal.batches():
            self._apply_batch(header, records)
            yield len(records)
        for group in list(self.groups.values()):
            group.loaded()

    def _apply_batch(self, header: BatchHeader, records: Sequence[Record]) -> None:
        if header.is_control:
            for record in records:
                if record.key in (_COMMIT_MARKER, _ABORT_MARKER):
                    self.offsets.complete(header.producer_id, committed=record.key == _COMMIT_MARKER)
            return
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        for record in records:
            if record.key is not None:
                self._apply_bytes(record.key, record.value, producer_id)

    def _apply_bytes(self, key: bytes, value: bytes | None, producer_id: int) -> None:
        if key[:2] in OFFSET_KEY_TYPES:  # by far the most: they are kept as they are, not decoded
            if producer_id == NO_PRODUCER_ID:
                self.offsets.apply_bytes(key, value)
            else:
                self.offsets.apply_pending_bytes(producer_id, key, value)
            return
        record = decode(InternalTopic.CONSUMER_OFFSETS, key, value)
        if record is not None:  # else of a type that only newer brokers know
            self._apply_group(record)

    def _apply_group(self, record: InternalRecord) -> None:
        if record.type is RecordType.GROUP_METADATA:
            self._apply_classic(record)
        elif record.type in CONSUMER_RECORD_TYPES:
            self._apply_consumer(record)

    def _apply_consumer(self, record: InternalRecord) -> None:
        group_id: str = record.key.group_id
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if record.value is None:
                return
            self._forget(group_id)
            group = self.groups[group_id] = self._new_consumer_group(group_id)
        if record.type is RecordType.CONSUMER_GROUP_METADATA and record.value is None:
            self._forget(group_id)
        else:
            group.state.apply(record)

    def _new_consumer_group(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(group_id, self.context, self.write, self._members_went)

    def _apply_classic(self, record: InternalRecord) -> None:
        group_id: str = record.key.group
        if record.value is not None:
            self._forget(group_id)
            self.groups[group_id] = ClassicGroup.restored(group_id, record.value, self.context, self.append)
        elif isinstance(self.groups.get(group_id), ClassicGroup):
            self._forget(group_id)

    def _forget(self, group_id: str) -> None:
        group = self.groups.pop(group_id, None)
        if group is not None:
            group.close(CoordinatorNotAvailable)

    # -- groups -----------------------------------------------------------------------------------------------------

    def group(self, group_id: str) -> Group | None:
        return self.groups.get(group_id)

    def classic_group(self, group_id: str) -> Group:
        """The group, or a new one of the classic protocol with no members."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id, self.context, self.append)
        return group

    def member_group(self, group_id: str) -> Group:
        """The group that somebody says to be a member of.

        :raises InvalidGroupId: if the group has no name.
        :raises UnknownMemberId: if there is no such group.
        """
        if not group_id:
            raise InvalidGroupId("a group of members needs a name")
        group = self.groups.get(group_id)
        if group is None:
            raise UnknownMemberId(f"there is no group {group_id!r}")
        return group

    def join(self, group_id: str, joining: Joining, respond: Callable[[Joined], None]) -> None:
        """A member joins; the first one makes the group.

        :raises KafkaError: if it may not. Then ``respond`` is not called.
        """
        settings = self.context.settings
        least_ms, most_ms = settings.int("group.min.session.timeout.ms"), settings.int("group.max.session.timeout.ms")
        if group_id and not least_ms <= joining.session_timeout_ms <= most_ms:
            raise InvalidSessionTimeout(f"a session timeout is from {least_ms} to {most_ms} ms")
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup) and group.is_empty and joining.member_id == UNKNOWN_MEMBER:
            self.write(group.tombstones())  # a group without members may change its protocol
            self.classic_group(group_id)
        if group_id in self.groups or not group_id or joining.member_id != UNKNOWN_MEMBER:
            self.member_group(group_id).join(joining, respond)
            return
        group = ClassicGroup(group_id, self.context, self.append)
        group.join(joining, respond)
        self.groups[group_id] = group

    def consumer_heartbeat(self, group_id: str, beat: Beat) -> Beaten:
        """What ConsumerGroupHeartbeat asks for: the first member makes the group, or makes it one of its protocol.

        :raises KafkaError: if the member may not.
        """
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if beat.epoch != JOINS:
                raise GroupIdNotFound(f"there is no consumer group {group_id!r}")
            group = self._made_consumer_group(group_id, group, beat)
        return group.heartbeat_of(beat)

    def _made_consumer_group(self, group_id: str, former: Group | None, beat: Beat) -> ConsumerGroup:
        if beat.topic_regex:
            compiled_pattern(beat.topic_regex)  # raises before anything is made for a member that cannot join
        if isinstance(former, ClassicGroup):
            records = upgraded(former, self.context)
            self.append(records)
            former.close(RebalanceInProgress)  # who waits for its next generation is to join the group that it becomes
            self._apply_all(records, NO_PRODUCER_ID)
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            group.loaded()
        else:
            group = self.groups[group_id] = self._new_consumer_group(group_id)
        return group

    def _members_went(self, group_id: str) -> None:
        """If only members of the classic protocol are left in a consumer group, it becomes a classic one."""
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup) and should_downgrade(group, self.context.settings):
            self.write(downgraded(group, self.context))
            classic = self.groups[group_id]
            assert isinstance(classic, ClassicGroup)
            classic.loaded()
            classic.changed()

    def remove_group(self, group_id: str) -> None:
        """Takes a group and all its offsets out of the log, and so out of here."""
        group = self.groups.get(group_id)
        records = self.offsets.delete_records(group_id)
        self.write([*records, *(group.tombstones() if group is not None else ())])
        self._forget(group_id)

    def delete_group(self, group_id: str) -> None:
        """What DeleteGroups asks for.

        :raises GroupIdNotFound, NonEmptyGroup: if it cannot be.
        """
        group = self.groups.get(group_id)
        if group is None:
            raise GroupIdNotFound(f"there is no group {group_id!r}")
        if not group.is_empty:
            raise NonEmptyGroup(f"the group {group_id!r} has members")
        self.remove_group(group_id)

    def close(self) -> None:
        """Another broker coordinates these groups from now on, or none."""
        for group in self.groups.values():
            group.close(NotCoordinator)
        self.groups.clear()
