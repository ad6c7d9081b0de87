"""Asks the cluster, as one user: topics, offsets, settings, log dirs, groups.

Each method returns what the admin client returns. Lists are kept for a second, and log dirs for longer, because brokers
measure the sizes of files for them. ``admin`` is for changes; after a change, ``forget`` makes the next page ask again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from headrace.client.admin.async_admin import AsyncAdmin
from headrace.client.admin.types import (
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    Features,
    GroupListing,
    ListedOffset,
    LogDir,
    ResourceKind,
    Results,
    TopicDescription,
)
from headrace.client.errors import BrokerError
from headrace.client.types import TopicPartition
from headrace.console.cluster.cached import Cached
from headrace.console.cluster.fetching import Fetching
from headrace.console.cluster.health import is_under_replicated
from headrace.runtime.clock import Clock, SystemClock

_T = TypeVar("_T")
LIST_SECONDS = 1.0
LOG_DIRS_SECONDS = 10.0
#: A partition whose leader does not answer is shown without offsets, instead of keeping the page waiting.
_OFFSETS_TIMEOUT_MS = 3_000
_MIN_ISR = "min.insync.replicas"
_NUMBERS_SECONDS = 60.0
_RESOURCES_PER_REQUEST = 1_000


class Ends(NamedTuple):
    """The first and the end offset of a partition. None if its leader did not answer."""

    first_offset: int | None
    end_offset: int | None


class ClusterReader:
    """The cluster as one user sees it."""

    def __init__(self, clients: Mapping[str, object], clock: Clock | None = None) -> None:
        """
        :param clients: the options of the admin client.
        """
        self.admin = AsyncAdmin({"enable.metrics.push": False, "client.id": "headrace-console", **clients})
        self.clients = dict(clients)
        self.fetching = Fetching(clients, clock)
        self._cached = Cached(clock or SystemClock())

    async def close(self) -> None:
        await self.fetching.close()
        await self.admin.close()

    def forget(self) -> None:
        """Makes the next page ask the cluster again, because something has changed."""
        self._cached.forget()

    async def kept(self, key: Hashable, seconds: float, ask: Callable[[], Awaitable[_T]]) -> _T:
        """Returns the answer to a question of another module, and keeps it like the answers of this class.

        :param key: begins with a word that no other question begins with.
        """
        return await self._cached.get(key, seconds, ask)

    async def cluster(self) -> ClusterDescription:
        """The brokers and the controller."""
        return await self._cached.get("cluster", LIST_SECONDS, self.admin.describe_cluster)

    async def features(self) -> Features:
        return await self._cached.get("features", LOG_DIRS_SECONDS, self.admin.describe_features)

    async def topics(self) -> dict[str, TopicDescription]:
        """All topics that the user may see, by name. A topic that cannot be described is left out."""

        async def ask() -> dict[str, TopicDescription]:
            return (await self.admin.describe_topics()).ok

        return await self._cached.get("topics", LIST_SECONDS, ask)

    async def topic(self, name: str) -> TopicDescription:
        """
        :raises UnknownTopic: if there is none, or the user may not see it.
        """
        return await self._cached.get(("topic", name), LIST_SECONDS, lambda: self.admin.describe_topic(name))

    async def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Ends]:
        """The first and end offsets of partitions that have a leader. Nothing waits for a leader to be elected."""
        wanted = tuple(partitions)

        async def ask() -> dict[TopicPartition, Ends]:
            first, end = await asyncio.gather(
                self.admin.list_offsets(dict.fromkeys(wanted, "earliest"), timeout_ms=_OFFSETS_TIMEOUT_MS),
                self.admin.list_offsets(dict.fromkeys(wanted, "latest"), timeout_ms=_OFFSETS_TIMEOUT_MS),
            )
            return {at: Ends(_offset(first, at), _offset(end, at)) for at in wanted}

        return await self._cached.get(("ends", wanted), LIST_SECONDS, ask)

    async def settings(self, kind: ResourceKind, name: str) -> dict[str, ConfigEntry]:
        """The settings of a topic, broker or group, by name, with the layers below each value."""
        resource = ConfigResource(kind, name)

        async def ask() -> dict[str, ConfigEntry]:
            found = await self.admin.describe_configs([resource], include_synonyms=True, include_documentation=True)
            return found.value(resource)

        return await self._cached.get(("settings", resource), LIST_SECONDS, ask)

    async def min_isr(self, topics: Iterable[TopicDescription]) -> dict[str, int]:
        """``min.insync.replicas`` of the topics whose in-sync replicas may be too few.

        Those are topics that are under-replicated, or have fewer replicas than the brokers' default. To ask for the
        settings of all topics of a large cluster would take seconds.
        """
        default = (await self.broker_settings()).get(_MIN_ISR)
        least = int(default.value) if default is not None and default.value else 1
        suspects = sorted(
            topic.name
            for topic in topics
            if any(is_under_replicated(each) or len(each.in_sync_replicas) < least for each in topic.partitions)
        )
        return await self.numbers(_MIN_ISR, suspects)

    async def log_dirs(self) -> Results[int, dict[str, LogDir]]:
        """The log dirs of each broker, by path, with the replicas in them."""
        return await self._cached.get("log dirs", LOG_DIRS_SECONDS, self.admin.describe_log_dirs)

    async def broker_settings(self) -> dict[str, ConfigEntry]:
        """The settings of one broker, which give the defaults of topics. Empty if the user may not see them."""

        async def ask() -> dict[str, ConfigEntry]:
            brokers = (await self.cluster()).brokers
            try:
                return await self.settings("broker", str(brokers[0].id)) if brokers else {}
            except BrokerError:
                return {}

        return await self._cached.get("broker settings", _NUMBERS_SECONDS, ask)

    async def sizes(self, topic: str) -> dict[TopicPartition, int]:
        """The bytes of each partition on the disk of its largest replica. Empty if the user may not see log dirs."""

        async def ask() -> dict[TopicPartition, int]:
            found = await self.admin.describe_log_dirs(topics=[topic], timeout_ms=_OFFSETS_TIMEOUT_MS)
            return largest_replicas(found)

        return await self._cached.get(("sizes", topic), LOG_DIRS_SECONDS, ask)

    async def numbers(self, setting: str, topics: Iterable[str]) -> dict[str, int]:
        """The value of a setting that is a number, by topic. Topics whose settings the user may not see are left out.

        Brokers are asked at most once per minute: settings change rarely.
        """
        resources = tuple(ConfigResource("topic", name) for name in topics)

        async def ask() -> dict[str, int]:
            found: dict[str, int] = {}
            for begin in range(0, len(resources), _RESOURCES_PER_REQUEST):
                answer = await self.admin.describe_configs(
                    resources[begin : begin + _RESOURCES_PER_REQUEST], names=[setting]
                )
                for resource, entries in answer.ok.items():
                    if setting in entries:
                        found[resource.name] = int(entries[setting].value or 0)
            return found

        return await self._cached.get(("numbers", setting, resources), _NUMBERS_SECONDS, ask)

    async def groups(self) -> list[GroupListing]:
        """The groups that the user may see."""
        return await self._cached.get("groups", LIST_SECONDS, self.admin.list_groups)


def _offset(found: Results[TopicPartition, ListedOffset], at: TopicPartition) -> int | None:
    result = found.ok.get(at)
    return None if result is None else result.offset


def largest_replicas(found: Results[int, dict[str, LogDir]]) -> dict[TopicPartition, int]:
    """The size of each partition: that of its largest replica. Replicas that move to another log dir do not count."""
    sizes: dict[TopicPartition, int] = {}
    for log_dirs in found.ok.values():
        for log_dir in log_dirs.values():
            for at, replica in log_dir.replicas.items():
                if not replica.is_future:
                    sizes[at] = max(sizes.get(at, 0), replica.size_bytes)
    return sizes
