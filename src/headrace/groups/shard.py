"""Holds the groups and offsets of one partition of ``__consumer_offsets``.

State that must survive a restart changes only by records. :meth:`GroupShard.write` appends records and then applies
them; loading applies all records of the log. State that need not survive (which member is joining, timers) lives in the
groups and is lost with the broker, as in Kafka. Then the clients join again. A crash between an append and its response
leaves a record that no client knows of; the client repeats its request.

A classic group changes its own state and appends a record without applying it (:meth:`GroupShard.append`): the record
is a snapshot of the group. A group of the consumer protocol (KIP-848) has one record for each of its parts, and
changes only by applying them.
"""

from collections.abc import Callable, Iterator, Sequence

from headrace.groups.classic.group import ClassicGroup
from headrace.groups.committed_offsets import KEY_TYPES as OFFSET_KEY_TYPES
from headrace.groups.committed_offsets import CommittedOffsets
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.heartbeat import ConsumerHeartbeatRequest, ConsumerHeartbeatResponse
from headrace.groups.consumer.member import JOIN_EPOCH
from headrace.groups.consumer.records import RECORD_TYPES as CONSUMER_RECORD_TYPES
from headrace.groups.context import GroupContext
from headrace.groups.group import UNKNOWN_MEMBER, Group, JoinRequest, JoinResponse
from headrace.groups.migration import downgrade_records, should_downgrade, upgrade_records
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
    """The state of one partition, and the requests that concern it."""

    def __init__(self, context: GroupContext, journal: Journal) -> None:
        self.context = context
        self.groups: dict[str, Group] = {}
        #: A client that commits without being a member creates a group that has only offsets.
        self.offsets = CommittedOffsets(context, on_first=self.ensure_group)
        self._journal = journal

    @property
    def index(self) -> int:
        return self._journal.index

    # -- records ----------------------------------------------------------------------------------------------------

    def write(
        self, records: Sequence[KeyValue], *, producer_id: int = NO_PRODUCER_ID, producer_epoch: int = _NO_EPOCH
    ) -> None:
        """Appends records and applies them. If a producer is given, the records belong to its transaction.

        :raises StorageError: if the records could not be appended. Then nothing has changed.
        """
        self.append(records, producer_id=producer_id, producer_epoch=producer_epoch)
        self._apply_all(records, producer_id)

    def _apply_all(self, records: Sequence[KeyValue], producer_id: int) -> None:
        for key, value in records:
            self._apply_bytes(key, value, producer_id)

    def append(
        self, records: Sequence[KeyValue], *, producer_id: int = NO_PRODUCER_ID, producer_epoch: int = _NO_EPOCH
    ) -> None:
        """Appends records whose content is already applied.

        :raises StorageError: if the records could not be appended.
        """
        self._journal.write(records, producer_id=producer_id, producer_epoch=producer_epoch)

    def load(self) -> Iterator[int]:
        """Applies the log, one batch per step. Each step yields the number of records of its batch."""
        for header, records in self._journal.batches():
            self._apply_batch(header, records)
            yield len(records)
        for group in list(self.groups.values()):
            group.on_loaded()

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
        if key[:2] in OFFSET_KEY_TYPES:  # most records are offsets: they are stored as bytes, not decoded
            if producer_id == NO_PRODUCER_ID:
                self.offsets.apply(key, value)
            else:
                self.offsets.apply_pending(producer_id, key, value)
            return
        record = decode(InternalTopic.CONSUMER_OFFSETS, key, value)
        if record is not None:  # None: a type of record that only newer brokers have
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
            self._unload_group(group_id)
            group = self.groups[group_id] = self._new_consumer_group(group_id)
        if record.type is RecordType.CONSUMER_GROUP_METADATA and record.value is None:
            self._unload_group(group_id)
        else:
            group.metadata.apply(record)

    def _new_consumer_group(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(group_id, self.context, self.write, self._members_removed)

    def _apply_classic(self, record: InternalRecord) -> None:
        group_id: str = record.key.group
        if record.value is not None:
            self._unload_group(group_id)
            self.groups[group_id] = ClassicGroup.from_record(group_id, record.value, self.context, self.append)
        elif isinstance(self.groups.get(group_id), ClassicGroup):
            self._unload_group(group_id)

    def _unload_group(self, group_id: str) -> None:
        group = self.groups.pop(group_id, None)
        if group is not None:
            group.unload(CoordinatorNotAvailable)

    # -- groups -----------------------------------------------------------------------------------------------------

    def group(self, group_id: str) -> Group | None:
        return self.groups.get(group_id)

    def ensure_group(self, group_id: str) -> Group:
        """The group. If there is none, a new classic group without members."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup.new(group_id, self.context, self.append)
        return group

    def member_group(self, group_id: str) -> Group:
        """The group of a member that sends a request.

        :raises InvalidGroupId: if the group id is empty.
        :raises UnknownMemberId: if there is no such group.
        """
        if not group_id:
            raise InvalidGroupId("the group id is empty; only a group with an id has members")
        group = self.groups.get(group_id)
        if group is None:
            raise UnknownMemberId(f"there is no group {group_id!r}, so it has no members")
        return group

    def join(self, group_id: str, request: JoinRequest, respond: Callable[[JoinResponse], None]) -> None:
        """Adds a member. The first member creates the group.

        :raises KafkaError: if the member may not join. Then ``respond`` is not called.
        """
        settings = self.context.settings
        least_ms, most_ms = settings.int("group.min.session.timeout.ms"), settings.int("group.max.session.timeout.ms")
        if group_id and not least_ms <= request.session_timeout_ms <= most_ms:
            raise InvalidSessionTimeout(
                f"the session timeout {request.session_timeout_ms} ms is not between {least_ms} ms "
                f"(group.min.session.timeout.ms) and {most_ms} ms (group.max.session.timeout.ms)"
            )
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup) and group.is_empty and request.member_id == UNKNOWN_MEMBER:
            self.write(group.tombstones())  # a group without members may change its protocol
            self.ensure_group(group_id)
        if group_id in self.groups or not group_id or request.member_id != UNKNOWN_MEMBER:
            self.member_group(group_id).join(request, respond)
            return
        group = ClassicGroup.new(group_id, self.context, self.append)
        group.join(request, respond)
        self.groups[group_id] = group

    def consumer_heartbeat(self, group_id: str, request: ConsumerHeartbeatRequest) -> ConsumerHeartbeatResponse:
        """Answers a ConsumerGroupHeartbeat. The first member creates the group, or migrates a classic group.

        :raises KafkaError: if the member is unknown or fenced, or may not join.
        """
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if request.epoch != JOIN_EPOCH:
                raise GroupIdNotFound(f"there is no group {group_id!r} of the consumer protocol")
            group = self._create_consumer_group(group_id, group, request)
        return group.consumer_heartbeat(request)

    def _create_consumer_group(
        self, group_id: str, former: Group | None, request: ConsumerHeartbeatRequest
    ) -> ConsumerGroup:
        if request.topic_regex:
            compiled_pattern(request.topic_regex)  # raises before anything is created for a member that cannot join
        if isinstance(former, ClassicGroup):
            records = upgrade_records(former, self.context)
            self.append(records)
            former.unload(RebalanceInProgress)  # members that wait for their next generation join the new group instead
            self._apply_all(records, NO_PRODUCER_ID)
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            group.on_loaded()
        else:
            group = self.groups[group_id] = self._new_consumer_group(group_id)
        return group

    def _members_removed(self, group_id: str) -> None:
        """Makes a consumer group a classic group if all members that are left use the classic protocol."""
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup) and should_downgrade(group, self.context.settings):
            self.write(downgrade_records(group, self.context))
            classic = self.groups[group_id]
            assert isinstance(classic, ClassicGroup)
            classic.on_loaded()
            classic.rebalance()

    def remove_group(self, group_id: str) -> None:
        """Deletes a group and all its offsets, in the log and in memory."""
        group = self.groups.get(group_id)
        records = self.offsets.delete_records(group_id)
        self.write([*records, *(group.tombstones() if group is not None else ())])
        self._unload_group(group_id)

    def delete_group(self, group_id: str) -> None:
        """Deletes a group for DeleteGroups.

        :raises GroupIdNotFound: if there is no such group.
        :raises NonEmptyGroup: if the group has members.
        """
        group = self.groups.get(group_id)
        if group is None:
            raise GroupIdNotFound(f"there is no group {group_id!r}")
        if not group.is_empty:
            raise NonEmptyGroup(f"the group {group_id!r} has members; stop them, and delete the group then")
        self.remove_group(group_id)

    def unload(self) -> None:
        """Unloads all groups: another broker coordinates them from now on, or none."""
        for group in self.groups.values():
            group.unload(NotCoordinator)
        self.groups.clear()
