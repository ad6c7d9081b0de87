"""Partitions on their way to another log dir of this broker (``log/relocation.py`` has the theory).

A move runs in the background. While much is missing a thread copies; once it is little, the loop does the rest in one
turn, so that no append comes in between, and the partition goes on with the log in its new place. A partition has at
most one move; asking for another dir cancels the first, asking for the dir where it is cancels it altogether.
"""

from __future__ import annotations

from collections.abc import Iterator
from logging import getLogger
from typing import TYPE_CHECKING

from headrace.log.log_dir import LogDir
from headrace.log.partition_log import PartitionLog
from headrace.log.relocation import Relocation
from headrace.protocol.errors import StorageError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

logger = getLogger(__name__)

#: What may be left for the one turn of the loop.
_REST_BYTES = 1 << 20
_REST_SEGMENTS = 4


class Relocations:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._moves: dict[PartitionLog, Relocation] = {}

    def __iter__(self) -> Iterator[Relocation]:
        return iter(list(self._moves.values()))

    def __len__(self) -> int:
        return len(self._moves)

    def move(self, log: PartitionLog, log_dir: LogDir) -> None:
        """Begins to move a log, unless it is there or on its way there."""
        under_way = self._moves.get(log)
        if under_way is not None:
            if under_way.log_dir is log_dir:
                return
            under_way.cancelled.set()
            del self._moves[log]
        if log.log_dir is not log_dir:
            relocation = self._moves[log] = Relocation(log, log_dir)
            self._broker.maintenance.run_soon(self._run(relocation))

    def stop(self) -> None:
        """Moves end where they are; the next start removes what they have copied."""
        for relocation in self._moves.values():
            relocation.cancelled.set()

    async def _run(self, relocation: Relocation) -> None:
        log = relocation.log
        try:
            if await self._bring_most(relocation):
                self._swap(relocation)
                return
            relocation.discard()
        except (OSError, StorageError) as error:
            logger.error("%s-%d stays in %s: %s", log.topic, log.partition, log.log_dir.path, error)
            if isinstance(error, OSError):
                relocation.log_dir.take_offline(error)
            relocation.discard()
        finally:
            if self._moves.get(log) is relocation:
                del self._moves[log]

    async def _bring_most(self, relocation: Relocation) -> bool:
        """Copies until little is missing; False if the move has been given up meanwhile."""
        from headrace.log.compaction.cleaner import Throttle  # start-up does not load the cleaner

        limit_bytes = self._broker.config.int("replica.alter.log.dirs.io.max.bytes.per.second")
        throttle = Throttle(max(1, limit_bytes), self._broker.clock, relocation.cancelled.wait)
        while not (relocation.cancelled.is_set() or relocation.log.is_closed):
            missing = relocation.plan()
            if sum(part.end - part.start for part in missing) <= _REST_BYTES and len(missing) <= _REST_SEGMENTS:
                return True
            relocation.note(await self._broker.run_blocking(relocation.copy, missing, throttle.spend))
        return False

    def _swap(self, relocation: Relocation) -> None:
        broker, old = self._broker, relocation.log
        moved = broker.logs.replace_with_copy(relocation)
        partition = broker.partitions.get(old.topic, old.partition)
        if partition is not None:
            partition.replace_log(moved)
        broker.maintenance.cleaner.forget(old)
        logger.info("%s-%d moved from %s to %s", old.topic, old.partition, old.log_dir.path, moved.log_dir.path)
