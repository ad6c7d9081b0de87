"""Waiting until what was appended is committed: all in-sync replicas have it, so that no change of leader loses it.

With one replica an append is committed when it is done, and nothing here waits. In a cluster a partition says when its
high watermark has moved or its role has changed (``cluster/replicas.py``), by the purgatory of acks=all.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.broker.network.prompt_future import PromptFuture
from headrace.protocol.errors import KafkaError, RequestTimedOut
from headrace.replication.partition import Partition
from headrace.runtime.purgatory import DelayedOperation

if TYPE_CHECKING:
    from headrace.broker.broker import Broker


class Commits(DelayedOperation):
    """Waits for several appends; what became of each is in :attr:`errors`, None where it is committed."""

    def __init__(self, waits: Sequence[tuple[Partition, int]], done: Future[None]) -> None:
        self.done = done
        self._pending = dict(enumerate(waits))
        self.errors: list[KafkaError | None] = [None] * len(waits)

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
            self.errors[number] = RequestTimedOut("it is in the leader's log, and not in sync yet")
        if not self.done.done():
            self.done.set_result(None)


async def commits(
    broker: Broker, waits: Sequence[tuple[Partition, int]], timeout_ms: int
) -> Sequence[KafkaError | None]:
    """What became of each append, given by its partition and the offset behind it. Waits for all of them."""
    waiting = Commits(waits, PromptFuture(loop=broker.loop))
    keys = [(partition.log.topic, partition.log.partition) for partition, _ in waits]
    if not broker.delayed_produce.try_complete_else_watch(waiting, keys, timeout_ms):
        await waiting.done
    return waiting.errors


async def committed(broker: Broker, waits: Sequence[tuple[Partition, int]], timeout_ms: int) -> None:
    """Returns when every partition's high watermark has reached its offset; alone, at once.

    :raises NotLeaderOrFollower: if another broker leads one of them now.
    :raises RequestTimedOut: if it takes too long.
    :raises NotEnoughReplicasAfterAppend: if it is in the log, and too few are in sync.
    """
    if all(partition.log.high_watermark >= end_offset for partition, end_offset in waits):
        return
    for error in await commits(broker, waits, timeout_ms):
        if error is not None:
            raise error
