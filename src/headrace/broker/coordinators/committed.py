"""Waits until appended records are committed: all in-sync replicas have them, so no change of leader loses them.

With one replica an append is committed at once, and nothing here waits. With several replicas a partition reports that
its high watermark has moved or that its role has changed (``replicas/replicas.py``); the purgatory of Produce requests
with acks=all then checks the waiting operations again.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future
from collections.abc import Sequence

from headrace.broker.network.prompt_future import PromptFuture
from headrace.protocol.errors import KafkaError, RequestTimedOut
from headrace.replication.partition import Partition
from headrace.runtime.purgatory import DelayedOperation, Purgatory

#: An append: its partition, and the offset behind its last record.
Append = tuple[Partition, int]

#: How long WriteTxnMarkers waits until its markers are committed.
MARKER_COMMIT_TIMEOUT_MS = 5_000


class _DelayedCommit(DelayedOperation):
    """Waits for several appends. :attr:`errors` has one entry per append: None if the append is committed."""

    def __init__(self, appends: Sequence[Append], done: Future[None]) -> None:
        self.done = done
        self._pending = dict(enumerate(appends))
        self.errors: list[KafkaError | None] = [None] * len(appends)

    def try_complete(self) -> bool:
        for number, (partition, end_offset) in list(self._pending.items()):
            try:
                if not partition.is_acknowledged(end_offset):
                    continue
            except KafkaError as error:
                self.errors[number] = error
            del self._pending[number]
        return not self._pending and self.force_complete()

    def on_complete(self) -> None:
        for number in self._pending:
            self.errors[number] = RequestTimedOut("the records are in the leader's log, and not yet in all replicas")
        if not self.done.done():
            self.done.set_result(None)


class CommitWaits:
    def __init__(self, loop: AbstractEventLoop, delayed_produce: Purgatory[tuple[str, int]]) -> None:
        self._loop = loop
        self._delayed_produce = delayed_produce

    async def outcomes(self, appends: Sequence[Append], timeout_ms: int) -> Sequence[KafkaError | None]:
        """Waits for all appends. The result has one entry per append: None if the append is committed."""
        waiting = _DelayedCommit(appends, PromptFuture(loop=self._loop))
        keys = [(partition.log.topic, partition.log.partition) for partition, _ in appends]
        if not self._delayed_produce.try_complete_else_watch(waiting, keys, timeout_ms):
            await waiting.done
        return waiting.errors

    async def committed(self, appends: Sequence[Append], timeout_ms: int) -> None:
        """Returns when every partition's high watermark has reached the append's end.

        :raises NotLeaderOrFollower: if another broker leads one of the partitions now.
        :raises RequestTimedOut: if it takes too long.
        :raises NotEnoughReplicasAfterAppend: if the records are in the log, and too few replicas are in sync.
        """
        if all(partition.log.high_watermark >= end_offset for partition, end_offset in appends):
            return
        for error in await self.outcomes(appends, timeout_ms):
            if error is not None:
                raise error
