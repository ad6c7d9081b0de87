"""Keeps answers for a moment: who asks meanwhile gets the same answer, and who asks at once waits for the same request.

An answer that took long is kept for longer: at least as long as it took, so that a slow cluster is never asked more
than half of the time. A failure is not kept. The number of answers is bounded; the oldest goes first. Answers that
are no longer good are dropped, because lists of a large cluster are large.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from headrace.runtime.clock import Clock

_T = TypeVar("_T")
_MOST_ANSWERS = 500


@dataclass
class _Answer:
    asked: asyncio.Future[Any]
    good_until_ms: float


class Cached:
    """The answers of one reader."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answers: OrderedDict[Hashable, _Answer] = OrderedDict()

    async def get(self, key: Hashable, seconds: float, ask: Callable[[], Awaitable[_T]]) -> _T:
        """Returns the answer for a key, and asks for it if there is none that is young enough."""
        known = self._answers.get(key)
        if known is None or self._clock.monotonic_ms() >= known.good_until_ms:
            known = _Answer(asyncio.ensure_future(self._asked(key, seconds, ask)), float("inf"))
            known.asked.add_done_callback(_read_failure)
            self._answers[key] = known
            self._drop_old(key)
        # A visitor who goes away must not end the request that others wait for.
        return cast(_T, await asyncio.shield(known.asked))

    def forget(self) -> None:
        """Forgets all answers, after a change."""
        self._answers.clear()

    def _drop_old(self, wanted: Hashable) -> None:
        now_ms = self._clock.monotonic_ms()
        for key in [key for key, each in self._answers.items() if each.good_until_ms <= now_ms and key != wanted]:
            del self._answers[key]
        while len(self._answers) > _MOST_ANSWERS:
            self._answers.popitem(last=False)

    async def _asked(self, key: Hashable, seconds: float, ask: Callable[[], Awaitable[_T]]) -> _T:
        begun_ms = self._clock.monotonic_ms()
        mine = self._answers.get(key)
        try:
            found = await ask()
        except BaseException:
            if self._answers.get(key) is mine:
                self._answers.pop(key, None)
            raise
        now_ms = self._clock.monotonic_ms()
        if mine is not None:
            mine.good_until_ms = now_ms + max(seconds * 1_000, now_ms - begun_ms)
        return found


def _read_failure(asked: asyncio.Future[Any]) -> None:
    """Marks a failure as seen: who asked may have gone away."""
    if not asked.cancelled():
        asked.exception()
