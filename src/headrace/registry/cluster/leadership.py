"""Holds who the leader is, and makes this registry the writer of the topic while it is the leader."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from logging import getLogger

from headrace.registry.cluster.journal import TopicJournal
from headrace.registry.cluster.membership import Leader
from headrace.registry.errors import RegistryError, no_leader

logger = getLogger(__name__)

#: An election takes this long if the last leader was killed: its session, and the time for all members to join.
SETTLE_SECONDS = 20.0
_RETRY_SECONDS = 0.5


class Leadership:
    """Holds which registry accepts changes: this registry, another registry, or none at the moment."""

    def __init__(self, journal: TopicJournal) -> None:
        self._journal = journal
        self._leader: Leader | None = None
        self._is_ready = False
        self._changed = asyncio.Condition()
        self._taking_over: asyncio.Task[None] | None = None

    async def on_leader(self, leader: Leader | None) -> None:
        """The group has a new leader, or none."""
        if leader == self._leader and leader is not None and (self._is_ready or self._taking_over is not None):
            return
        await self._stop_taking_over()
        self._leader, self._is_ready = leader, False
        if leader is None or not leader.is_self:
            await self._journal.resign()
        if leader is not None:
            logger.info("the leader of the registries is %s", leader.identity.url)
            if leader.is_self:
                self._taking_over = asyncio.create_task(self._take_over())
                return
        await self._set_ready(leader is not None)

    async def leader(self) -> Leader:
        """Waits until there is a leader that can write.

        :raises RegistryError: if there is none in time.
        """
        try:
            async with asyncio.timeout(SETTLE_SECONDS), self._changed:
                await self._changed.wait_for(lambda: self._is_ready)
        except TimeoutError:
            raise no_leader(
                f"no registry was elected leader in {SETTLE_SECONDS:g} s; check that the brokers are reachable"
            ) from None
        assert self._leader is not None
        return self._leader

    async def close(self) -> None:
        await self._stop_taking_over()

    async def _take_over(self) -> None:
        while True:
            try:
                await self._journal.lead()
                break
            except RegistryError as error:
                logger.warning("the registry is the leader, but cannot write yet: %s", error.message)
                await asyncio.sleep(_RETRY_SECONDS)
        await self._set_ready(True)

    async def _set_ready(self, is_ready: bool) -> None:
        async with self._changed:
            self._is_ready = is_ready
            self._changed.notify_all()

    async def _stop_taking_over(self) -> None:
        task, self._taking_over = self._taking_over, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
