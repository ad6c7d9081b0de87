"""Holds the committed offsets of one partition of ``__consumer_offsets``.

The state is what compaction leaves: for each key the last value, as bytes. A request commits hundreds of offsets, and a
restart replays all of them, but clients fetch few. So a value is decoded only when it is read (``offset_records.py``),
and applying a record is one assignment. A damaged value causes an error only when a client fetches this offset.

Offsets that are committed within a transaction are *pending* until the transaction's marker is written. Then they
count, unless the log has a later commit of the same partition that counts already: a commit without a transaction, or
one of another transaction. Their order in the log decides which commit is later. While an offset is pending,
:meth:`CommittedOffsets.has_pending` says so, and a client that asks for stable offsets has to wait. A tombstone deletes
both the committed and the pending offset.

Nothing here writes to the log. The methods ``*_records`` return the records to write; the shard writes and applies
them.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, cast

from headrace.groups.context import GroupContext
from headrace.groups.offset_records import (
    KEY_TYPES,
    NO_EXPIRY,
    CommittedOffset,
    TopicCommit,
    checked_key,
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
from headrace.replication.journal import KeyValue

__all__ = ["KEY_TYPES", "NO_EXPIRY", "CommittedOffset", "CommittedOffsets", "TopicCommit"]

_MS_PER_MINUTE = 60_000


class ExpiringGroup(Protocol):
    """A group, as far as the expiry of its offsets needs it."""

    @property
    def group_id(self) -> str: ...
    def is_subscribed_to(self, topic: str) -> bool: ...
    def expires_from_ms(self, commit_timestamp_ms: int) -> int | None:
        """The wall time from which the retention of an offset counts. None while the group's offsets are in use."""


class _PendingOffset(NamedTuple):
    #: The position in the log among all pending offsets.
    sequence: int
    #: None if a later commit counts already. Then this offset will never count, but its transaction is still open.
    value: bytes | None


class CommittedOffsets:
    """The committed and pending offsets of all groups of one partition."""

    def __init__(self, context: GroupContext, *, on_first: Callable[[str], object] = lambda _: None) -> None:
        """``on_first`` is called with a group's id before the group gets its first offset, pending or not."""
        self._context = context
        self._on_first = on_first
        #: The values by the key prefix of their group, then by key.
        self._groups: dict[bytes, dict[bytes, bytes]] = {}
        #: The pending offsets by producer id, then by key.
        self._pending: dict[int, dict[bytes, _PendingOffset]] = {}
        #: For each key, the producers whose transactions have a pending offset. Empty most of the time.
        self._open: dict[bytes, set[int]] = {}
        self._next_sequence = 0

    # -- records, as they are in the log ----------------------------------------------------------------------------

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Applies a record that was written outside of a transaction. Its key is of one of :data:`KEY_TYPES`."""
        if value is not None and not self._open:
            try:  # the common case in one step: a restart calls this method for every record
                self._groups[key[: 4 + (key[2] << 8 | key[3])]][key] = value
            except KeyError:
                pass  # the first offset of the group, or a key of the legacy type
            except IndexError:
                raise CorruptMessage(f"{key!r} is not the key of a committed offset") from None
            else:
                return
        key = checked_key(key)
        if value is None:
            self._delete(key)
            return
        self._put(key, value)
        self._supersede(key, self._next_sequence)

    def apply_commits(self, group_id: str, records: Sequence[KeyValue]) -> None:
        """Applies all records that :meth:`commit_records` returned for a group."""
        group = self._groups.get(group_prefix(group_id))
        if group is None or self._open:
            for key, value in records:
                self.apply(key, value)
        else:
            group.update(cast(Sequence[tuple[bytes, bytes]], records))

    def apply_pending(self, producer_id: int, key: bytes, value: bytes | None) -> None:
        """Applies a record that was written within a producer's transaction."""
        key = checked_key(key)
        if value is None:
            self._delete(key)  # no coordinator writes a tombstone in a transaction; it can only mean a deletion
            return
        if group_prefix_of(key) not in self._groups:
            self._on_first(group_of(group_prefix_of(key)))
        self._pending.setdefault(producer_id, {})[key] = _PendingOffset(self._next_sequence, value)
        self._open.setdefault(key, set()).add(producer_id)
        self._next_sequence += 1

    def complete(self, producer_id: int, *, committed: bool) -> None:
        """Completes the pending offsets of a producer whose marker was written. Most transactions have no offsets."""
        for key, pending in self._pending.pop(producer_id, {}).items():
            self._remove_open(producer_id, key)
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

    def _delete(self, key: bytes) -> None:
        for producer_id in tuple(self._open.get(key, ())):
            del self._pending[producer_id][key]
            if not self._pending[producer_id]:
                del self._pending[producer_id]
            self._remove_open(producer_id, key)
        prefix = group_prefix_of(key)
        group = self._groups.get(prefix)
        if group is not None and group.pop(key, None) is not None and not group:
            del self._groups[prefix]

    def _remove_open(self, producer_id: int, key: bytes) -> None:
        producers = self._open[key]
        producers.discard(producer_id)
        if not producers:
            del self._open[key]

    def _supersede(self, key: bytes, sequence: int) -> None:
        """Marks the pending offsets of a key that come earlier in the log as never counting."""
        for producer_id in self._open.get(key, ()):
            pending = self._pending[producer_id][key]
            if pending.sequence < sequence:
                self._pending[producer_id][key] = pending._replace(value=None)

    # -- questions --------------------------------------------------------------------------------------------------

    def committed(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        return next(self.of_topic(group_id, topic, (partition,)))

    def of_topic(self, group_id: str, topic: str, partitions: Iterable[int]) -> Iterator[CommittedOffset | None]:
        """The committed offset of each partition, or None."""
        group = self._groups.get(group_prefix(group_id), {})
        for key in offset_keys(group_id, topic, partitions):
            value = group.get(key)
            yield None if value is None else read_value(value)

    def of_group(self, group_id: str) -> Mapping[tuple[str, int], CommittedOffset]:
        """All committed offsets of a group, by topic and partition."""
        return dict(self.each_of_group(group_id))

    def each_of_group(self, group_id: str) -> Iterator[tuple[tuple[str, int], CommittedOffset]]:
        """All committed offsets that a group has at the time of the call. The caller may pause between them."""
        prefix = group_prefix(group_id)
        stored = list(self._groups.get(prefix, {}).items())
        return ((topic_and_partition_of(key, len(prefix)), read_value(value)) for key, value in stored)

    def count_of(self, group_id: str) -> int:
        """The number of a group's committed offsets, without pending ones."""
        return len(self._groups.get(group_prefix(group_id), ()))

    def has_pending(self, group_id: str, topic: str | None = None, partition: int | None = None) -> bool:
        """Tells whether an offset of the group, of one of its topics, or of one partition is pending."""
        if not self._open:
            return False
        if topic is not None and partition is not None:
            return offset_key(group_id, topic, partition) in self._open
        prefix = group_prefix(group_id)
        return any(
            key.startswith(prefix) and topic in (None, topic_and_partition_of(key, len(prefix))[0])
            for key in self._open
        )

    # -- records to write -------------------------------------------------------------------------------------------

    def commit_records(
        self, group_id: str, commits: Iterable[TopicCommit], *, expire_timestamp_ms: int = NO_EXPIRY
    ) -> list[KeyValue]:
        """The records of a commit."""
        now_ms = self._context.clock.wall_ms()
        records: list[KeyValue] = []
        for commit in commits:
            records += write_values(commit, group_id, now_ms, expire_timestamp_ms)
        return records

    def delete_records(self, group_id: str, partitions: Collection[tuple[str, int]] | None = None) -> list[KeyValue]:
        """The tombstones that delete a group's offsets, committed and pending: of some partitions, or of all."""
        prefix = group_prefix(group_id)
        group = self._groups.get(prefix, {})
        if partitions is None:
            return [(key, None) for key in {**group, **dict.fromkeys(self._open_keys(prefix))}]
        keys = dict.fromkeys(offset_key(group_id, topic, partition) for topic, partition in partitions)
        return [(key, None) for key in keys if key in group or key in self._open]

    def topic_deleted_records(self, topic: str) -> list[KeyValue]:
        """The tombstones that delete all groups' offsets of a topic, committed and pending."""
        name = topic.encode()
        keys = dict.fromkeys(key for group in self._groups.values() for key in group if name in key)
        keys.update(dict.fromkeys(key for key in self._open if name in key))
        return [(key, None) for key in keys if topic_and_partition_of(key, len(group_prefix_of(key)))[0] == topic]

    def expired_records(self, group: ExpiringGroup, now_ms: int) -> list[KeyValue]:
        """The tombstones of a group's offsets that are older than ``offsets.retention.minutes``.

        A commit with its own expiry time expires at that time. The offset of a partition with a pending offset stays.
        """
        retention_ms = self._context.settings.int("offsets.retention.minutes") * _MS_PER_MINUTE
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
