"""Writes to ZooKeeper that succeed only while this broker is the controller.

Every write is a ``multi`` that starts with a check of the version of ``/controller_epoch``. That version changes when a
later controller is elected. So a controller that was replaced and does not know it changes nothing: ZooKeeper rejects
the write, and :class:`ControllerMoved` ends the work in progress.

When the connection breaks during a write, the result of the write is unknown. The write is repeated. If ZooKeeper
rejects the second attempt, the data and the version in ZooKeeper show whether the first attempt succeeded
(``coordination/retried_changes.py``), because only this controller writes its epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from logging import getLogger
from typing import TypeVar

from headrace.coordination import retried_changes
from headrace.coordination.interface import BadVersionError, Check, Coordination, Delete, NoNodeError, Operation
from headrace.coordination.paths import CONTROLLER_EPOCH

logger = getLogger(__name__)

T = TypeVar("T")
S = TypeVar("S")

#: How many calls are in progress at once: enough to keep the connection busy, few enough to let the loop do other work.
_MAX_IN_FLIGHT = 1024


class ControllerMoved(Exception):
    """Another broker is the controller, or was elected in the meantime."""


async def pipelined(call: Callable[[S], Awaitable[T]], items: Iterable[S]) -> list[T]:
    """Makes many calls at once, sent in order. If a call fails, waits for the others and raises the first error."""
    waiting = list(items)
    results: list[T] = []
    for start in range(0, len(waiting), _MAX_IN_FLIGHT):
        answers = await asyncio.gather(*map(call, waiting[start : start + _MAX_IN_FLIGHT]), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            results.append(answer)
    return results


class FencedWriter:
    """Writes znodes in one controller epoch."""

    def __init__(self, coordination: Coordination, epoch_version: int) -> None:
        """:param epoch_version: the version of ``/controller_epoch`` while this broker is the controller."""
        self.coordination = coordination
        self._check = Check(CONTROLLER_EPOCH, epoch_version)

    async def write(self, operations: Sequence[Operation], is_done: Callable[[], Awaitable[bool]]) -> None:
        """Performs all operations, or none of them.

        :param is_done: called after a connection loss; reads whether these operations were performed.
        :raises ControllerMoved: if another broker is the controller now.
        """
        try:
            await retried_changes.multi(self.coordination, [self._check, *operations], is_done)
        except (BadVersionError, NoNodeError) as error:
            if error.operation_index == 0:
                raise ControllerMoved(
                    f"another controller was elected: {CONTROLLER_EPOCH} no longer has version {self._check.version}"
                ) from error
            raise

    async def contains(self, path: str, data: bytes, version: int) -> bool:
        try:
            found, stat = await self.coordination.get(path)
        except NoNodeError:
            return False
        return stat.version == version and found == data

    async def exists(self, path: str) -> bool:
        return await self.coordination.exists(path) is not None

    async def delete_together(self, paths: Sequence[str]) -> None:
        """Deletes all znodes in one transaction."""

        async def is_done() -> bool:
            return not await self.exists(paths[0])

        if paths:
            await self.write([Delete(path) for path in paths], is_done)

    async def delete_znodes(self, paths: Iterable[str]) -> None:
        """Deletes each znode on its own. Znodes that do not exist are skipped."""

        async def delete(path: str) -> None:
            try:
                await self.delete_together([path])
            except NoNodeError:
                logger.debug("%s was deleted before", path)

        await pipelined(delete, paths)
