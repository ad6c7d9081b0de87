"""Moves partitions to another log dir of this broker (``log/relocation.py`` has the theory).

A move runs in the background. A thread copies while much is missing. When little is missing, the event loop copies the
rest in one turn, so that no append comes in between, and the partition continues with the log in its new place. A
partition has at most one move. A request for another log dir cancels the running move; a request for the current log
dir only cancels it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from logging import getLogger
from threading import Event, Lock
from typing import TYPE_CHECKING

from headrace.broker.quotas.rates import RateLimit, windows_of
from headrace.log.log_dir import LogDir
from headrace.log.partition_log import PartitionLog
from headrace.log.relocation import Relocation
from headrace.protocol.errors import StorageError

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.runtime import BrokerRuntime
    from headrace.log.log_manager import LogManager
    from headrace.replication.partitions import Partitions

logger = getLogger(__name__)

#: How much may be left for the one turn of the event loop.
_REST_BYTES = 1 << 20
_REST_SEGMENTS = 4
_MAX_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
#: How soon a move that is too fast checks the rate again. The setting may have changed.
_LOOK_AGAIN_S = 0.05


class Relocations:
    def __init__(
        self,
        config: BrokerConfig,
        runtime: BrokerRuntime,
        logs: LogManager,
        partitions: Partitions,
        *,
        run_soon: Callable[[Coroutine[None, None, None]], object],
        on_log_replaced: Callable[[PartitionLog], object],
    ) -> None:
        """
        :param run_soon: runs a coroutine in the background.
        :param on_log_replaced: is called with the log of the old place after a move.
        """
        self._config = config
        self._runtime = runtime
        self._logs = logs
        self._partitions = partitions
        self._run_soon = run_soon
        self._on_log_replaced = on_log_replaced
        self._moves: dict[PartitionLog, Relocation] = {}
        windows = windows_of(config, "alter.log.dirs.replication.quota.window")
        self._rate = RateLimit(runtime.clock, lambda: config.int(_MAX_RATE), windows)
        self._rate_lock = Lock()

    def __iter__(self) -> Iterator[Relocation]:
        return iter(list(self._moves.values()))

    def __len__(self) -> int:
        return len(self._moves)

    def move(self, log: PartitionLog, log_dir: LogDir) -> None:
        """Begins to move a log, unless it is in this log dir or already moves there."""
        under_way = self._moves.get(log)
        if under_way is not None:
            if under_way.log_dir is log_dir:
                return
            under_way.cancelled.set()
            del self._moves[log]
        if log.log_dir is not log_dir:
            relocation = self._moves[log] = Relocation(log, log_dir)
            self._run_soon(self._run(relocation))

    def stop(self) -> None:
        """Cancels all moves. The next start removes what they have copied."""
        for relocation in self._moves.values():
            relocation.cancelled.set()

    async def _run(self, relocation: Relocation) -> None:
        log = relocation.log
        try:
            if await self._copy_most(relocation):
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

    async def _copy_most(self, relocation: Relocation) -> bool:
        """Copies until little is missing. Returns False if the move was cancelled meanwhile."""
        spend = partial(self._spend, relocation.cancelled)
        while not (relocation.cancelled.is_set() or relocation.log.is_closed):
            missing = relocation.plan()
            if sum(part.end - part.start for part in missing) <= _REST_BYTES and len(missing) <= _REST_SEGMENTS:
                return True
            relocation.note(await self._runtime.run_blocking(relocation.copy, missing, spend))
        return False

    def _spend(self, cancelled: Event, size_bytes: int) -> None:
        """Counts copied bytes, and waits until the rate allows more. All moves share the rate. Runs on a thread."""
        with self._rate_lock:
            self._rate.record(size_bytes)
        while self._is_too_fast() and not cancelled.wait(_LOOK_AGAIN_S):
            pass

    def _is_too_fast(self) -> bool:
        with self._rate_lock:
            return self._rate.is_exceeded

    def _swap(self, relocation: Relocation) -> None:
        old = relocation.log
        moved = self._logs.replace_with_copy(relocation)
        partition = self._partitions.get(old.topic, old.partition)
        if partition is not None:
            partition.replace_log(moved)
        self._on_log_replaced(old)
        logger.info("%s-%d moved from %s to %s", old.topic, old.partition, old.log_dir.path, moved.log_dir.path)
