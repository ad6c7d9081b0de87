"""How far groups have read: the committed offsets of one partition of ``__consumer_offsets``.

The state is what compaction leaves: for each key the last value, as bytes. Requests commit hundreds of offsets and
restarts replay all of them, but few are asked for; so a value is decoded when it is read (``offset_records.py``), and
applying a record is one assignment. A value that cannot be read is met there, by whoever asks for that one offset.

Offsets committed within a transaction are pending until its marker is written. Then they count, unless the log has a
later commit of the same partition that counts already: a plain one, or one of another transaction. Which is later is
told by their order in the log. While any is pending, ``has_pending`` says so: a reader that wants stable offsets waits.
A tombstone takes back what is committed and what is pending.

Nothing here writes. ``*_records`` say what to write; the shard writes it and applies it, as it does when it loads.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, cast

from headrace.groups.context import GroupContext
from headrace.groups.offset_records import (
    KEY_TYPES,
    NO_EXPIRY,
    Committed,
    PartitionCommit,
    TopicCommit,
    checked_key,
    encode_committed,
    group_of,
    group_prefix,
    group_prefix_of,
    offset_key,
    offset_keys,
    read_value,
    topic_and_partition_of,
    write_values,
)
from headrace.protocol.errors import CorruptMessage
from headrace.protocol.internal_records import InternalRecord, RecordType
from headrace.replication.journal import KeyValue

__all__ = ["KEY_TYPES", "NO_EXPIRY", "Committed", "Offsets", "PartitionCommit", "TopicCommit"]

_MS_A_MINUTE = 60_000


class ExpiringGroup(Protocol):
    """What expiry asks of a group."""

    @property
    def group_id(self) -> str: ...
    def is_subscribed_to(self, topic: str) -> bool: ...
    def expires_from_ms(self, commit_timestamp_ms: int) -> int | None:
        """From when on the retention of an offset of that commit time counts; None if it does not count now."""


class _Pending(NamedTuple):
    #: Where in the log it stands among all that was pending.
    sequence: int
    #: None if something later has been committed meanwhile: it will never count, but its transaction is still open.
    value: bytes | None


class Offsets:
    def __init__(self, context: GroupContext, *, on_first: Callable[[str], object] = lambda _: None) -> None:
        """``on_first`` is called with a group's id before it gets its first offset, pending or not."""
        self._context = context
        self._on_first = on_first
        #: By a group's key prefix; then by key.
        self._groups: dict[bytes, dict[bytes, bytes]] = {}
        self._pending: dict[int, dict[bytes, _Pending]] = {}
        #: For each key which transactions have something pending. Empty most of the time.
        self._open: dict[bytes, set[int]] = {}
        self._next_sequence = 0

    # -- records, as they are in the log ----------------------------------------------------------------------------

    def apply_bytes(self, key: bytes, value: bytes | None) -> None:
        """A record whose key is of one of :data:`KEY_TYPES`, written outside of a transaction."""
        if value is not None and not self._open:
            try:  # the common case in one step: this is called for every record of a replay
                self._groups[key[: 4 + (key[2] << 8 | key[3])]][key] = value
            except KeyError:
                pass  # the group's first offset, or a key of the legacy type
            except IndexError:
                raise CorruptMessage("not the key of a committed offset") from None
            else:
                return
        key = checked_key(key)
        if value is None:
            self._forget(key)
            return
        self._put(key, value)
        self._supersede(key, self._next_sequence)

    def apply_commits(self, group_id: str, records: Sequence[KeyValue]) -> None:
        """The same for many records of :meth:`commit_records` at once."""
        group = self._groups.get(group_prefix(group_id))
        if group is None or self._open:
            for key, value in records:
                self.apply_bytes(key, value)
        else:
            group.update(cast(Sequence[tuple[bytes, bytes]], records))

    def apply_pending_bytes(self, producer_id: int, key: bytes, value: bytes | None) -> None:
        key = checked_key(key)
        if value is None:
            self._forget(key)  # nobody writes this; a tombstone can only be meant to take back
            return
        if group_prefix_of(key) not in self._groups:
            self._on_first(group_of(group_prefix_of(key)))
        self._pending.setdefault(producer_id, {})[key] = _Pending(self._next_sequence, value)
        self._open.setdefault(key, set()).add(producer_id)
        self._next_sequence += 1

    def apply(self, record: InternalRecord) -> None:
        """The same, for who has decoded it already."""
        self.apply_bytes(*_bytes_of(record))

    def apply_pending(self, producer_id: int, record: InternalRecord) -> None:
        self.apply_pending_bytes(producer_id, *_bytes_of(record))

    def complete(self, producer_id: int, *, committed: bool) -> None:
        """A transaction's marker is written. Unknown ones are none of ours: most write no offsets."""
        for key, pending in self._pending.pop(producer_id, {}).items():
            self._close(producer_id, key)
            if committed and pending.value is not None:
                self._put(key, pending.value)
                self._supersede(key, pending.sequence)

    def _put(self, key: bytes, value: bytes) -> None:
        prefix = group_prefix_of(key)
        group = self._groups.get(prefix)
        if group is None:
            self._on_first(group_of(prefix))
            group = self._groups[prefix] = {}
        group[key] = value

    def _forget(self, key: bytes) -> None:
        for producer_id in tuple(self._open.get(key, ())):
            del self._pending[producer_id][key]
            if not self._pending[producer_id]:
                del self._pending[producer_id]
            self._close(producer_id, key)
        prefix = group_prefix_of(key)
        group = self._groups.get(prefix)
        if group is not None and group.pop(key, None) is not None and not group:
            del self._groups[prefix]

    def _close(self, producer_id: int, key: bytes) -> None:
        producers = self._open[key]
        producers.discard(producer_id)
        if not producers:
            del self._open[key]

    def _supersede(self, key: bytes, sequence: int) -> None:
        """What is pending for a key from before that point will not count."""
        for producer_id in self._open.get(key, ()):
            pending = self._pending[producer_id][key]
            if pending.sequence < sequence:
                self._pending[producer_id][key] = pending._replace(value=None)

    # -- questions --------------------------------------------------------------------------------------------------

    def committed(self, group_id: str, topic: str, partition: int) -> Committed | None:
        return next(self.of_topic(group_id, topic, (partition,)))

    def of_topic(self, group_id: str, topic: str, partitions: Iterable[int]) -> Iterator[Committed | None]:
        """For each of the partitions what is committed."""
        group = self._groups.get(group_prefix(group_id), {})
        for key in offset_keys(group_id, topic, partitions):
            value = group.get(key)
            yield None if value is None else read_value(value)

    def of_group(self, group_id: str) -> Mapping[tuple[str, int], Committed]:
        prefix = group_prefix(group_id)
        return {
            topic_and_partition_of(key, len(prefix)): read_value(value)
            for key, value in self._groups.get(prefix, {}).items()
        }

    def count_of(self, group_id: str) -> int:
        """How many offsets a group has, those pending left out."""
        return len(self._groups.get(group_prefix(group_id), ()))

    def has_pending(self, group_id: str, topic: str | None = None, partition: int | None = None) -> bool:
        if not self._open:
            return False
        if topic is not None and partition is not None:
            return offset_key(group_id, topic, partition) in self._open
        prefix = group_prefix(group_id)
        return any(
            key.startswith(prefix) and topic in (None, topic_and_partition_of(key, len(prefix))[0])
            for key in self._open
        )

    def group_ids(self) -> list[str]:
        """Of all groups that have offsets, whether there is a group or not."""
        return [group_of(prefix) for prefix in self._groups]

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    # -- what to write ----------------------------------------------------------------------------------------------

    def commit_records(
        self, group_id: str, commits: Iterable[TopicCommit], *, expire_timestamp_ms: int = NO_EXPIRY
    ) -> list[KeyValue]:
        now_ms = self._context.clock.wall_ms()
        records: list[KeyValue] = []
        for commit in commits:
            records += write_values(commit, group_id, now_ms, expire_timestamp_ms)
        return records

    def delete_records(self, group_id: str, partitions: Collection[tuple[str, int]] | None = None) -> list[KeyValue]:
        """Tombstones of those partitions that have an offset, pending or not; without partitions, of all."""
        prefix = group_prefix(group_id)
        group = self._groups.get(prefix, {})
        if partitions is None:
            return [(key, None) for key in {**group, **dict.fromkeys(self._open_keys(prefix))}]
        keys = dict.fromkeys(offset_key(group_id, topic, partition) for topic, partition in partitions)
        return [(key, None) for key in keys if key in group or key in self._open]

    def topic_deleted_records(self, topic: str) -> list[KeyValue]:
        """Tombstones of all groups' offsets of a topic, those pending too."""
        name = topic.encode()
        keys = dict.fromkeys(key for group in self._groups.values() for key in group if name in key)
        keys.update(dict.fromkeys(key for key in self._open if name in key))
        return [(key, None) for key in keys if topic_and_partition_of(key, len(group_prefix_of(key)))[0] == topic]

    def expired_records(self, group: ExpiringGroup, now_ms: int) -> list[KeyValue]:
        """Tombstones of what a group has kept for longer than ``offsets.retention.minutes``.

        A commit that came with an expiry of its own goes by that. What is pending keeps its partition's offset.
        """
        retention_ms = self._context.settings.int("offsets.retention.minutes") * _MS_A_MINUTE
        prefix = group_prefix(group.group_id)
        expired: list[KeyValue] = []
        for key, value in self._groups.get(prefix, {}).items():
            committed = read_value(value)
            from_ms = group.expires_from_ms(committed.commit_timestamp_ms)
            if from_ms is None:
                return []
            expires_ms = from_ms + retention_ms
            if committed.expire_timestamp_ms != NO_EXPIRY:
                expires_ms = committed.expire_timestamp_ms
            topic, _ = topic_and_partition_of(key, len(prefix))
            if expires_ms <= now_ms and key not in self._open and not group.is_subscribed_to(topic):
                expired.append((key, None))
        return expired

    def _open_keys(self, prefix: bytes) -> Iterator[bytes]:
        return (key for key in self._open if key.startswith(prefix))


def _bytes_of(record: InternalRecord) -> KeyValue:
    assert record.type in (RecordType.OFFSET_COMMIT, RecordType.LEGACY_OFFSET_COMMIT), record.type
    key, value = offset_key(record.key.group, record.key.topic, record.key.partition), record.value
    if value is None:
        return key, None
    return key, encode_committed(
        Committed(
            value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, value.expire_timestamp,
            value.topic_id,
        )
    )  # fmt: skip
