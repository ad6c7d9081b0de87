"""The fetchers of a broker: up to ``num.replica.fetchers`` per leader that it follows, created on demand.

A partition always goes to the same fetcher of its leader, by a hash of its name. Topics without an id (created by a
Kafka before 2.8) have separate fetchers, because their requests have another version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING
from zlib import crc32

from headrace.broker.replicas.fetcher import Fetcher
from headrace.replication.replicated_partition import ReplicatedPartition

if TYPE_CHECKING:
    from headrace.broker.replicas.context import ReplicaContext
    from headrace.broker.replicas.replicas import ReplicaManager


class Fetchers:
    """All fetchers of this broker."""

    def __init__(self, context: ReplicaContext, replicas: ReplicaManager) -> None:
        self._context = context
        self._replicas = replicas
        self._fetchers: dict[tuple[int, int, bool], Fetcher] = {}
        self._fetcher_of: dict[tuple[str, int], Fetcher] = {}
        self._serials = count()
        context.config.on_change("num.replica.fetchers", lambda _: self._distribute_again())

    def __iter__(self) -> Iterator[Fetcher]:
        return iter(self._fetchers.values())

    def add(self, partition: ReplicatedPartition) -> None:
        """The partition follows another broker from now on."""
        follower = partition.follower
        assert follower is not None
        number = crc32(f"{partition.log.topic}-{partition.log.partition}".encode())
        number %= self._context.config.int("num.replica.fetchers")
        key = follower.leader_id, number, partition.topic_id is not None
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            purpose = f"replica-fetcher-{number}-{next(self._serials)}"
            fetcher = self._fetchers[key] = Fetcher(
                self._context, self._replicas, follower.leader_id, purpose, has_topic_ids=partition.topic_id is not None
            )
        self._fetcher_of[partition.key] = fetcher
        fetcher.add(partition)

    def remove(self, partition: ReplicatedPartition) -> None:
        """The partition does not follow its leader any more. The caller has to call :meth:`stop_idle` afterwards."""
        fetcher = self._fetcher_of.pop(partition.key, None)
        if fetcher is not None:
            fetcher.remove(partition.key)

    def stop_idle(self) -> None:
        """Stops the fetchers that have no partition any more."""
        for key, fetcher in list(self._fetchers.items()):
            if not fetcher.partitions:
                del self._fetchers[key]
                self._replicas.run_soon(fetcher.drop_connection())
                fetcher.stop()

    def wake(self) -> None:
        """Ends the pauses of all fetchers: a leader's address may be known now."""
        for fetcher in self._fetchers.values():
            fetcher.wake()

    def lags(self) -> dict[tuple[str, int], int]:
        """The number of records that each partition is behind its leader's high watermark, as last known."""
        return {key: fetched.lag for fetcher in self for key, fetched in fetcher.partitions.items()}

    def failed_count(self) -> int:
        return sum(fetcher.failed_count for fetcher in self)

    def dead_count(self) -> int:
        return sum(fetcher.is_dead for fetcher in self)

    def min_fetch_rate(self) -> float:
        """The fetches per second of the fetcher that fetches least."""
        now_ms = self._context.runtime.clock.monotonic_ms()
        return min((fetcher.fetch_rate(now_ms) for fetcher in self), default=0.0)

    def _distribute_again(self) -> None:
        for fetcher in list(self._fetchers.values()):
            for fetched in list(fetcher.partitions.values()):
                partition = fetched.partition
                self.remove(partition)
                if partition.follower is fetched.follower:
                    self.add(partition)
        self.stop_idle()

    def stop(self) -> list[asyncio.Task[None]]:
        """Stops all fetchers. The caller may wait for the end of the returned tasks."""
        ended = [fetcher.stop() for fetcher in self._fetchers.values()]
        self._fetchers.clear()
        self._fetcher_of.clear()
        return ended
