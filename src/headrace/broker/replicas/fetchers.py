"""The fetchers of a broker: for each leader that it follows, ``num.replica.fetchers`` of them, made as they are needed.

A partition always goes to the same fetcher of its leader, by a hash of its name. Topics without an id (of a Kafka
before 2.8) have fetchers of their own, as the request's version is another one.
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
    from headrace.broker.broker import Broker
    from headrace.broker.replicas.replicas import ReplicaManager


class Fetchers:
    def __init__(self, broker: Broker, replicas: ReplicaManager) -> None:
        self._broker = broker
        self._replicas = replicas
        self._fetchers: dict[tuple[int, int, bool], Fetcher] = {}
        self._fetcher_of: dict[tuple[str, int], Fetcher] = {}
        self._serials = count()
        broker.config.on_change("num.replica.fetchers", lambda _: self._spread_anew())

    def __iter__(self) -> Iterator[Fetcher]:
        return iter(self._fetchers.values())

    def add(self, partition: ReplicatedPartition) -> None:
        """The partition follows another broker from now on."""
        follower = partition.follower
        assert follower is not None
        number = crc32(f"{partition.log.topic}-{partition.log.partition}".encode())
        number %= self._broker.config.int("num.replica.fetchers")
        key = follower.leader_id, number, partition.topic_id is not None
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            purpose = f"replica-fetcher-{number}-{next(self._serials)}"
            fetcher = self._fetchers[key] = Fetcher(
                self._broker, self._replicas, follower.leader_id, purpose, has_topic_ids=partition.topic_id is not None
            )
        self._fetcher_of[partition.key] = fetcher
        fetcher.add(partition)

    def remove(self, partition: ReplicatedPartition) -> None:
        """It does not follow, or not that leader. :meth:`settle` is to be called some time later."""
        fetcher = self._fetcher_of.pop(partition.key, None)
        if fetcher is not None:
            fetcher.remove(partition.key)

    def settle(self) -> None:
        """Fetchers that have nothing left to fetch end."""
        for key, fetcher in list(self._fetchers.items()):
            if not fetcher.follows:
                del self._fetchers[key]
                self._replicas.run_soon(fetcher.drop_connection())
                fetcher.close()

    def wake(self) -> None:
        """A leader's address may be known by now."""
        for fetcher in self._fetchers.values():
            fetcher.wake()

    def lags(self) -> dict[tuple[str, int], int]:
        """How many records each partition is behind its leader's high watermark, as far as that is known."""
        return {key: follow.lag for fetcher in self for key, follow in fetcher.follows.items()}

    def failed_count(self) -> int:
        return sum(fetcher.failed_count for fetcher in self)

    def dead_count(self) -> int:
        return sum(fetcher.is_dead for fetcher in self)

    def min_fetch_rate(self) -> float:
        """Fetches a second of the fetcher that fetches least."""
        now_ms = self._broker.clock.monotonic_ms()
        return min((fetcher.fetch_rate(now_ms) for fetcher in self), default=0.0)

    def _spread_anew(self) -> None:
        for fetcher in list(self._fetchers.values()):
            for follow in list(fetcher.follows.values()):
                partition = follow.partition
                self.remove(partition)
                if partition.follower is follow.follower:
                    self.add(partition)
        self.settle()

    def close(self) -> list[asyncio.Task[None]]:
        """Whose end may be waited for."""
        ended = [fetcher.close() for fetcher in self._fetchers.values()]
        self._fetchers.clear()
        self._fetcher_of.clear()
        return ended
