"""Writes that only the controller can make.

Every write is a ``multi`` that begins with a check of ``/controller_epoch``'s version, which is another since a later
controller was elected. So a controller that does not know yet that it was replaced changes nothing: the tree refuses,
and :class:`ControllerMoved` ends whatever was going on.

A connection that breaks leaves it open what was written. Then the write is made again, and what is found says whether
it was the first (``coordination/outcomes.py``): data and version tell, as the epochs in them are ours alone.
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

#: Calls that are under way at once: enough that nothing waits, not so many that the loop has no turn for others.
_MAX_IN_FLIGHT = 1024


class ControllerMoved(Exception):
    """Somebody else is controller, or was."""


async def pipelined(call: Callable[[S], Awaitable[T]], items: Iterable[S]) -> list[T]:
    """All under way at once, sent in order. If some fail the others are waited for, and the first error is raised."""
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
    def __init__(self, coordination: Coordination, epoch_version: int) -> None:
        """``epoch_version``: that of ``/controller_epoch`` while we are controller."""
        self.coordination = coordination
        self._check = Check(CONTROLLER_EPOCH, epoch_version)

    async def write(self, operations: Sequence[Operation], is_done: Callable[[], Awaitable[bool]]) -> None:
        """If we are still controller.

        :param is_done: asked after a connection broke: whether it is these operations that have been done.
        """
        try:
            await retried_changes.multi(self.coordination, [self._check, *operations], is_done)
        except (BadVersionError, NoNodeError) as error:
            if error.operation_index == 0:
                raise ControllerMoved(f"{CONTROLLER_EPOCH} has another version than {self._check.version}") from error
            raise

    async def has(self, path: str, data: bytes, version: int) -> bool:
        try:
            found, stat = await self.coordination.get(path)
        except NoNodeError:
            return False
        return stat.version == version and found == data

    async def exists(self, path: str) -> bool:
        return await self.coordination.exists(path) is not None

    async def delete_together(self, paths: Sequence[str]) -> None:
        async def is_done() -> bool:
            return not await self.exists(paths[0])

        if paths:
            await self.write([Delete(path) for path in paths], is_done)

    async def delete_znodes(self, paths: Iterable[str]) -> None:
        """Each for itself; those that are gone already are."""

        async def delete(path: str) -> None:
            try:
                await self.delete_together([path])
            except NoNodeError:
                logger.debug("%s is gone already", path)

        await pipelined(delete, paths)
