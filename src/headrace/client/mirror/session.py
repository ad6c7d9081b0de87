"""One session of a mirror: from connecting to its end, or to the first failure.

After any failure, the next session starts like one after a crash. So there is only one way to recover, and it is used
every time:

1. ``init_transactions`` ends the transaction that an earlier session left open, and fences that session.
2. The session reads the mirror's positions and the runs of its offset syncs from the target.
3. The session reads the source from these positions on.

A *round* is one transaction: records, the runs that contain their new offsets, and the positions behind them. A round
collects records until the source has no more for a moment, or until the round is large (``round_size.py``) or old
enough. A round is committed completely or not at all, so a crash leaves no part of a round.

Positions contain the source's cluster and topic, and the topic ids of both sides. So a mirror with the same name but
another source is detected. A topic that was deleted on either side and created again is mirrored from its start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Self

from headrace.client.admin.async_admin import AsyncAdmin
from headrace.client.arrow.tables import ArrowDelivery
from headrace.client.config import ConsumerConfig
from headrace.client.consumer.async_consumer import AsyncConsumer
from headrace.client.errors import HeadraceError, OffsetOutOfRange, UnsupportedByBroker
from headrace.client.mirror.chunks import Chunk, offset_pieces, split_by_topic
from headrace.client.mirror.delivery import AtLeastOnce, Delivery, ExactlyOnce
from headrace.client.mirror.group_offsets import sync_group_offsets
from headrace.client.mirror.offset_syncs import OffsetSyncs
from headrace.client.mirror.options import MirrorError, MirrorEvents, MirrorOptions
from headrace.client.mirror.round_size import RoundSize
from headrace.client.mirror.topic_names import NamesClash
from headrace.client.mirror.topics import MirroredTopic, prepare_topics
from headrace.client.producer.async_producer import AsyncProducer
from headrace.client.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

_POLL_BYTES = 8 << 20
#: How long a poll waits: for the first records of a round, and for more records.
_WAIT_MS = 200
_MORE_MS = 10
#: Small segments, because all but the last one are compacted, and the whole topic is read at each start.
_SYNCS_CONFIG = {"cleanup.policy": "compact", "segment.bytes": 8 << 20, "min.cleanable.dirty.ratio": 0.2}
#: How long an abort or a close may take after a failure.
_CLEANUP_MS = 2_000


@dataclass
class MirrorState:
    """The state of a mirror that outlives a session."""

    records: int = 0
    #: The number of source offsets that were copied.
    done_offsets: int = 0
    #: Whether a session has started to mirror.
    has_begun: bool = False
    is_exactly_once: bool = True
    #: With ``is_once``: the end offsets that are not reached yet.
    goals: dict[TopicPartition, int] = field(default_factory=dict)
    reported: set[MirroredTopic] = field(default_factory=set)
    round_size: RoundSize = field(default_factory=RoundSize)


class Session:
    """One session of a mirror. Use it with ``async with``."""

    def __init__(self, options: MirrorOptions, events: MirrorEvents, state: MirrorState) -> None:
        self._options = options
        self._events = events
        self._state = state
        self._stack = AsyncExitStack()
        self._syncs = OffsetSyncs()
        self._topics: dict[str, MirroredTopic] = {}
        #: The target's partitions by those of the source, and the committed positions at the source.
        self._targets: dict[TopicPartition, TopicPartition] = {}
        self._positions: dict[TopicPartition, int] = {}
        #: Whether a position is out of the source's range. A round detects it, and it is repaired after the round.
        self._is_out_of_range = False
        self._round_began = self._topics_refreshed = self._groups_synced = monotonic()

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def is_round_overdue(self) -> bool:
        """Whether the round has lasted so long that the coordinator may have aborted its transaction."""
        return (monotonic() - self._round_began) * 1000 > self._producer.config.transaction_timeout_ms

    # -- starting

    async def _open(self) -> None:
        options = self._options
        self._source = await self._stack.enter_async_context(AsyncAdmin(config=options.source_admin))
        self._target = await self._stack.enter_async_context(AsyncAdmin(config=options.target_admin))
        self._cluster_id = (await self._source.describe_cluster()).cluster_id
        self._is_one_cluster = (await self._target.describe_cluster()).cluster_id == self._cluster_id
        self._consumer = AsyncConsumer(config=options.consumer)
        await self._stack.enter_async_context(self._consumer)
        self._delivery = await self._open_delivery()
        await self._load_syncs()
        await self._refresh_topics()
        if options.is_once and not self._state.has_begun:
            if not self._topics:
                raise MirrorError("no topic of the source matches; check the included and excluded topics")
            self._state.goals = await self._consumer.end_offsets(*self._targets)
        self._state.has_begun = True

    async def _open_delivery(self) -> Delivery:
        group = self._options.own_name
        if self._options.is_exactly_once and self._state.is_exactly_once:
            config = {**self._options.producer, "transactional.id": group}
            await self._open_producer(config)
            delivery = ExactlyOnce(self._producer, group)
            try:
                await delivery.init()
                return delivery
            except UnsupportedByBroker:
                self._events.note("the target does not support transactions: records may be duplicated after a failure")
                self._state.is_exactly_once = False
        await self._open_producer(dict(self._options.producer))
        return AtLeastOnce(self._producer, self._target, group)

    async def _open_producer(self, config: dict[str, object]) -> None:
        self._producer = AsyncProducer(config=config)
        self._stack.push_async_callback(self._producer.close, _CLEANUP_MS)
        await self._producer.start()

    async def _load_syncs(self) -> None:
        topic = self._options.syncs_topic
        await self._target.create_topic(topic, 1, configs=_SYNCS_CONFIG, exist_ok=True)
        config = ConsumerConfig.select(self._options.target_admin)
        config |= {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
        partition = TopicPartition(topic, 0)
        async with AsyncConsumer(config=config) as consumer:
            consumer.assign([partition])
            end = (await consumer.end_offsets(partition))[partition]
            while await consumer.position(partition) < end:
                for record in await consumer.poll(_WAIT_MS, 5_000):
                    if record.key is not None and record.value is not None:
                        self._syncs.load(record.key, record.value)

    # -- topics

    async def _refresh_topics(self) -> None:
        """Finds the topics to mirror, and starts to mirror new ones."""
        self._topics_refreshed = monotonic()
        try:
            plan = self._options.names.plan(await self._source.list_topics())
        except NamesClash as error:
            raise MirrorError(str(error)) from None
        if self._is_one_cluster and (same := [name for name, target in plan.items() if name == target]):
            raise MirrorError(
                f"source and target are the same cluster: the topic {same[0]} needs another name at the target"
            )
        topics = await prepare_topics(self._source, self._target, plan, self._events.note)
        recreated = {one.source for one in topics if self._topics.get(one.source, one).ids != one.ids}
        self._topics = {topic.source: topic for topic in topics}
        targets = {
            TopicPartition(topic.source, index): TopicPartition(topic.target, index)
            for topic in topics
            for index in range(topic.partition_count)
        }
        new = {one for one in targets if one not in self._targets or one.topic in recreated}
        self._targets = targets
        if new or self._consumer.assignment() != targets.keys():
            positions = await self._find_positions(new) if new else {}
            self._consumer.assign(targets)
            for partition, offset in positions.items():
                self._consumer.seek(partition, offset)
        for topic in topics:
            if topic not in self._state.reported:
                self._state.reported.add(topic)
                self._events.mirroring(topic)

    async def _find_positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        committed = await self._target.list_group_offsets(self._options.own_name, require_stable=True)
        found: dict[TopicPartition, int] = {}
        never: list[TopicPartition] = []
        recreated: list[TopicPartition] = []
        for partition in sorted(partitions):
            target = self._targets[partition]
            translation = self._syncs.start(target, self._topics[partition.topic].target_id)
            place = committed.get(target)
            if place is not None and self._is_from_another_log(partition, place):
                recreated.append(partition)
                continue
            offset = translation.source_end if place is None else place.offset
            if offset is None:
                never.append(partition)
            else:
                found[partition] = offset
        for topic in sorted({partition.topic for partition in recreated}):
            self._events.note(
                f"{topic} was deleted and created again, at the source or at the target: it is mirrored from its start"
            )
        self._positions |= found
        moved = await self._look_up(never, recreated) | await self._positions_in_range(found)
        await self._commit_positions(moved)
        return found | moved

    async def _look_up(self, never: list[TopicPartition], recreated: list[TopicPartition]) -> dict[TopicPartition, int]:
        if self._options.start == "latest" and not self._state.has_begun:
            return await self._consumer.end_offsets(*never) | await self._consumer.beginning_offsets(*recreated)
        return await self._consumer.beginning_offsets(*never, *recreated)

    def _is_from_another_log(self, partition: TopicPartition, place: OffsetAndMetadata) -> bool:
        """Whether a committed position belongs to an earlier topic with the same name.

        :raises MirrorError: if the position belongs to another cluster or topic.
        """
        origin, _, ids = place.metadata.rpartition("/")
        now, _, ids_now = self._label(partition.topic).rpartition("/")
        if origin != now:
            raise MirrorError(
                f"the mirror {self._options.name!r} has filled {self._targets[partition].topic} from another source, "
                f"{origin or 'unknown'}, not from {now}; start this mirror with another --name"
            )
        return ids != ids_now

    def _label(self, topic: str) -> str:
        return f"{self._cluster_id}/{topic}/{self._topics[topic].ids}"

    # -- mirroring

    async def run(self, stopping: asyncio.Event) -> None:
        """Mirrors until it is stopped or, with ``is_once``, until it has caught up."""
        options = self._options
        while not stopping.is_set():
            if _is_due(self._topics_refreshed, options.refresh_topics_every_ms):
                await self._refresh_topics()
            await self._round()
            if self._is_out_of_range:
                await self._repair_positions()
            if _is_due(self._groups_synced, options.sync_groups_every_ms):
                await self._sync_groups()
            if options.is_once and await self._has_caught_up():
                break
        await self._finish()

    async def _round(self) -> None:
        records = await self._poll(_WAIT_MS)
        if records is None:
            return
        self._round_began = began = monotonic()
        await self._delivery.begin()
        try:
            sent: list[tuple[Chunk, ArrowDelivery]] = []
            size_bytes = count = 0
            while records is not None:
                for chunk in split_by_topic(records):
                    target = self._topics[chunk.topic].target
                    sent.append((chunk, await self._producer.send_arrow(target, chunk.table)))
                count += records.num_rows
                size_bytes += records.nbytes
                self._report(count)
                if size_bytes >= self._state.round_size.max_bytes or _is_due(began, self._options.commit_every_ms):
                    break
                records = await self._poll(_MORE_MS)
            positions = await self._positions_of({TopicPartition(c.topic, p) for c, _ in sent for p in c.offsets})
            await self._store_runs(sent)
            await self._commit(positions)
        except (HeadraceError, asyncio.CancelledError):
            self._state.round_size.failed((monotonic() - began) * 1000, self._producer.config.transaction_timeout_ms)
            await self._abort()
            raise
        took_ms, timeout_ms = (monotonic() - began) * 1000, self._producer.config.transaction_timeout_ms
        self._state.round_size.committed(size_bytes, took_ms, timeout_ms)
        self._state.records += count
        self._report()

    async def _poll(self, wait_ms: float) -> pa.RecordBatch | None:
        try:
            max_bytes = min(_POLL_BYTES, self._state.round_size.max_bytes)
            records = await self._consumer.poll_arrow(wait_ms, max_bytes=max_bytes, include_headers=True)
        except OffsetOutOfRange:
            self._is_out_of_range = True
            return None
        return records if records.num_rows else None

    async def _positions_of(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: await self._consumer.position(partition) for partition in sorted(partitions)}

    async def _store_runs(self, sent: list[tuple[Chunk, ArrowDelivery]]) -> None:
        """Waits until all records are acknowledged, and sends the runs that contain their offsets."""
        stored = []
        for chunk, delivery in sent:
            await delivery
            topic = self._topics[chunk.topic]
            for index, placed in delivery.batch_offsets().items():
                found = offset_pieces(chunk.offsets[index], placed)
                runs = self._syncs.add(TopicPartition(topic.target, index), topic.target_id, found)
                for key, value in runs:
                    stored.append(await self._producer.send(self._options.syncs_topic, value, key=key, partition=0))
        for one in stored:
            await one

    async def _commit(self, positions: dict[TopicPartition, int]) -> None:
        await self._delivery.commit(
            {
                self._targets[partition]: OffsetAndMetadata(offset, self._label(partition.topic))
                for partition, offset in positions.items()
            }
        )
        for partition, offset in positions.items():
            self._state.done_offsets += max(0, offset - self._positions.get(partition, offset))
        self._positions |= positions

    async def _abort(self) -> None:
        """Aborts the transaction, so that readers of the target do not wait until it times out."""
        with suppress(HeadraceError, TimeoutError):
            async with asyncio.timeout(_CLEANUP_MS / 1000):
                await self._delivery.abort()

    async def _commit_positions(self, positions: dict[TopicPartition, int]) -> None:
        """Commits positions without records, so that the next session starts from them."""
        if positions:
            await self._delivery.begin()
            await self._commit(positions)

    async def _repair_positions(self) -> None:
        self._is_out_of_range = False
        await self._refresh_topics()  # A topic that was created again starts again.
        moved = await self._positions_in_range(await self._positions_of(self._targets))
        for partition, offset in moved.items():
            self._consumer.seek(partition, offset)
        await self._commit_positions(moved)

    async def _positions_in_range(self, positions: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Returns new positions for partitions whose position is out of the source's range.

        The source has deleted old records before they were mirrored, or has lost new records in a crash afterwards.
        """
        if not positions:
            return {}
        begins = await self._consumer.beginning_offsets(*positions)
        ends = (await self._source.list_offsets(dict.fromkeys(positions, "latest"))).all()
        moved: dict[TopicPartition, int] = {}
        for partition, position in positions.items():
            begin, end = begins[partition], ends[partition].offset
            if begin <= position <= end:
                continue
            # Without topic ids, an end before the position may also be the end of a new topic.
            to = begin if position < begin or not self._topics[partition.topic].source_id else end
            why = f"has deleted its records before {begin}" if position < begin else f"ends at {end}"
            self._events.note(f"{partition} {why}, but the next offset was {position}: it is mirrored from {to} on")
            moved[partition] = to
        return moved

    # -- group offsets and progress

    async def _has_caught_up(self) -> bool:
        goals = self._state.goals
        for partition in [one for one in goals if one not in self._targets]:
            del goals[partition]  # The topic was deleted meanwhile.
        for partition, position in (await self._positions_of(goals)).items():
            if position >= goals[partition]:
                del goals[partition]
        return not goals

    async def _sync_groups(self) -> None:
        self._groups_synced = monotonic()
        groups = self._options.groups
        if groups is None:
            return
        names = {topic.source: topic.target for topic in self._topics.values()}
        moved = await sync_group_offsets(self._source, self._target, groups, names, self._syncs.translations)
        if moved:
            self._events.groups_moved(moved)

    async def _finish(self) -> None:
        """Commits the last positions, which may be behind transaction markers and compacted records."""
        positions = await self._positions_of(self._targets)
        passed = {one: offset for one, offset in positions.items() if offset > self._positions.get(one, -1)}
        await self._commit_positions(passed)
        await self._sync_groups()
        self._report()

    def _report(self, on_the_way: int = 0) -> None:
        lag = sum(self._consumer.current_lag(partition) or 0 for partition in self._targets)
        self._events.moved(self._state.done_offsets + on_the_way, lag)


def _is_due(since_s: float, every_ms: float) -> bool:
    return (monotonic() - since_s) * 1000 >= every_ms
