"""Samples the cluster every ten seconds: end offsets, sizes, what groups have read, and unwell partitions.

Further sources add measures to a sample: the metrics of the brokers, if the command line names where they are, and the
catalog of a project of views.

The sampler has a client of its own: with the user of ``--command-config``, if the cluster needs a login. So it may
see more than a visitor; a page shows only topics and groups that its visitor may see. A large cluster is sampled less
often: a sample takes at most a fiftieth of the time. A cluster that is away leaves a gap, and one line in the log.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable
from logging import getLogger
from typing import Any

from headrace.client.admin.types import LogDir, Results
from headrace.client.errors import BrokerError, HeadraceError
from headrace.client.types import TopicPartition
from headrace.console.broker_metrics.measured import ALL_TOTALS, Measured
from headrace.console.broker_metrics.source import MetricsSource
from headrace.console.cluster.health import is_under_replicated
from headrace.console.cluster.reader import ClusterReader, largest_replicas
from headrace.console.history.sample import GroupSample, Sample, TopicRates, TopicSample, measure_of_total, topic_rates
from headrace.console.history.store import Store
from headrace.runtime.clock import Clock

logger = getLogger(__name__)
ReadMeasures = Callable[[], Coroutine[Any, Any, dict[str, float | None]]]
_TIMEOUT_MS = 5_000
#: The sampler rests this many times as long as a sample takes.
_REST = 50
_LONGEST_SECONDS = 120.0
_MOST_GROUPS = 500
_GROUPS_AT_ONCE = 8
#: Rates are taken over at least this time, so that they do not jump.
_RATE_MS = 20_000


class Sampler:
    """Samples one cluster. ``latest`` is the last sample; None before the first."""

    def __init__(
        self,
        reader: ClusterReader,
        store: Store,
        clock: Clock,
        every_seconds: float,
        metrics: MetricsSource | None = None,
        views: ReadMeasures | None = None,
    ) -> None:
        """
        :param metrics: where the metrics of the brokers are.
        :param views: reads the measures of the views; None if there is no project.
        """
        self._reader = reader
        self._store = store
        self._clock = clock
        self._every_seconds = every_seconds
        self._metrics = metrics
        self._views = views
        self._reading_views: asyncio.Task[dict[str, float | None]] | None = None
        #: What the metrics of the brokers told last.
        self.measured: Measured | None = None
        self._recent: list[Sample] = []
        self._is_failing = False

    @property
    def latest(self) -> Sample | None:
        return self._recent[-1] if self._recent else None

    def rates(self, topic: str) -> TopicRates | None:
        """How fast a topic grows; None if it is not known yet."""
        return topic_rates(self._recent[0], self._recent[-1], topic) if self._recent else None

    async def run(self) -> None:
        """Samples until it is cancelled."""
        while True:
            begun_ms = self._clock.monotonic_ms()
            try:
                await self.sample()
                self._is_failing = False
            except (HeadraceError, TimeoutError, sqlite3.Error) as error:
                if not self._is_failing:
                    logger.warning("the cluster is not sampled until it answers: %s", error)
                self._is_failing = True
            taken_seconds = (self._clock.monotonic_ms() - begun_ms) / 1_000
            await asyncio.sleep(min(_LONGEST_SECONDS, max(self._every_seconds, _REST * taken_seconds)))

    async def sample(self) -> Sample:
        """Takes one sample."""
        found = await self._read()
        await asyncio.to_thread(self._store.add, found)
        self._recent.append(found)
        while len(self._recent) > 2 and found.time_ms - self._recent[1].time_ms >= _RATE_MS:
            self._recent.pop(0)
        return found

    async def _read(self) -> Sample:
        topics = await self._reader.topics()
        led = [
            TopicPartition(topic.name, each.partition)
            for topic in topics.values()
            for each in topic.partitions
            if each.leader_id >= 0
        ]
        partitions = [each for topic in topics.values() for each in topic.partitions]
        found, log_dirs, measures, of_views = await asyncio.gather(
            self._reader.admin.list_offsets(dict.fromkeys(led, "latest"), timeout_ms=_TIMEOUT_MS),
            self._log_dirs(),
            self._measures(),
            self._of_views(),
        )
        ends = {at: listed.offset for at, listed in found.ok.items()}
        time_ms = self._clock.wall_ms()
        sums: dict[str, int] = defaultdict(int)
        for at, offset in ends.items():
            sums[at.topic] += offset
        bytes_of: dict[str, int] = defaultdict(int)
        for at, size_bytes in largest_replicas(log_dirs).items():
            bytes_of[at.topic] += size_bytes
        return Sample(
            time_ms,
            {name: TopicSample(sums[name], bytes_of[name] if log_dirs.ok else None) for name in topics},
            frozenset(name for name, topic in topics.items() if topic.is_internal),
            await self._groups(ends),
            sum(each.leader_id < 0 for each in partitions),
            sum(map(is_under_replicated, partitions)),
            _all_bytes(log_dirs) if log_dirs.ok else None,
            measures | of_views,
        )

    async def _measures(self) -> dict[str, float | None]:
        if self._metrics is None:
            return {}
        self.measured = await self._metrics.read()
        return {measure_of_total(name): self.measured.totals.get(name) for name in ALL_TOTALS}

    async def _of_views(self) -> dict[str, float | None]:
        """The measures of the views. A database that does not answer delays a sample once, for some seconds."""
        if self._views is None:
            return {}
        if self._reading_views is None:
            self._reading_views = asyncio.create_task(self._views())
            await asyncio.wait({self._reading_views}, timeout=_TIMEOUT_MS / 1_000)
        if not self._reading_views.done():
            return {}
        found, self._reading_views = self._reading_views.result(), None
        return found

    async def _log_dirs(self) -> Results[int, dict[str, LogDir]]:
        """The log dirs; empty if the sampler may not see them."""
        try:
            return await self._reader.admin.describe_log_dirs(timeout_ms=_TIMEOUT_MS)
        except BrokerError:
            return Results()

    async def _groups(self, ends: dict[TopicPartition, int]) -> dict[tuple[str, str], GroupSample]:
        """The progress of at most 500 groups. Groups that the sampler may not see are left out."""
        found: dict[tuple[str, str], GroupSample] = {}
        turn = asyncio.Semaphore(_GROUPS_AT_ONCE)

        async def read(group: str) -> None:
            async with turn:
                try:
                    offsets = await self._reader.admin.list_group_offsets(group, timeout_ms=_TIMEOUT_MS)
                except HeadraceError:
                    return
            committed: dict[str, list[tuple[int, int]]] = defaultdict(list)
            for at, offset in offsets.items():
                if at in ends:
                    committed[at.topic].append((offset.offset, max(0, ends[at] - offset.offset)))
            for topic, pairs in committed.items():
                found[group, topic] = GroupSample(sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs))

        await asyncio.gather(*(read(group) for group in await self._group_ids()))
        return found

    async def _group_ids(self) -> Iterable[str]:
        try:
            return [group.group_id for group in (await self._reader.groups())[:_MOST_GROUPS]]
        except BrokerError:
            return ()


def _all_bytes(log_dirs: Results[int, dict[str, LogDir]]) -> int:
    return sum(
        replica.size_bytes
        for of_broker in log_dirs.ok.values()
        for log_dir in of_broker.values()
        for replica in log_dir.replicas.values()
    )
