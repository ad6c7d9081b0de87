"""Keeps what a broker has read from the znode tree up to date: ACLs, delegation tokens, settings.

A follower has a task that sleeps until a notification arrives (``tree/notifications.py``). The task then applies the
new notifications, or reads everything, if notifications may have been missed. If that fails, the task tries again
after a second, and reads everything. A request may call :meth:`TreeFollower.catch_up` itself, if it must not answer
from outdated memory.

The watches of a session end with the session. So the follower reads everything again in each new session, also if the
session ends during the first read or right after it.

The lock orders all reads and writes of the owner. A session sees its own tree in order, so an older content never
replaces a newer one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from logging import getLogger
from typing import TYPE_CHECKING

from headrace.broker.tree.notifications import TreeNotifications
from headrace.coordination.interface import CoordinationError, SessionState
from headrace.event_loop import cancel_and_wait

if TYPE_CHECKING:
    from headrace.coordination.interface import Coordination
    from headrace.runtime.clock import Clock

logger = getLogger(__name__)

_READ_AGAIN_AFTER_S = 1.0


class TreeFollower:
    def __init__(
        self, coordination: Coordination, clock: Clock, what: str, *, read_all: Callable[[], Awaitable[None]]
    ) -> None:
        """
        :param what: what the owner follows, for the log.
        :param read_all: reads everything. It is called with the lock.
        """
        self._coordination = coordination
        self._clock = clock
        self._what = what
        self._read_all = read_all
        self._notifications: list[TreeNotifications] = []
        self._must_read_all = False
        self._is_listening = False
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.lock = asyncio.Lock()

    def watch(self, parent: str, prefix: str, apply: Callable[[bytes], Awaitable[None]]) -> TreeNotifications:
        """Follows the notifications below a znode, too. Called before :meth:`load`.

        :param apply: is called with the content of each new notification, in order, with the lock.
        """
        watched = TreeNotifications(
            self._coordination, self._clock, parent, prefix, apply=apply, on_changed=self._wake.set
        )
        self._notifications.append(watched)
        return watched

    # -- life cycle

    async def load(self, read_all: Callable[[], Awaitable[None]] | None = None) -> None:
        """Reads everything. Changes from now on are noticed, and applied after :meth:`start`.

        :param read_all: reads everything at the start, if that differs from later.
        """
        self._listen_to_session()
        try:
            async with self.lock:
                await self._read_from_here(self._read_all if read_all is None else read_all)
        except BaseException:
            self._stop_listening()
            raise

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def stop(self) -> None:
        self._stop_listening()
        if self._task is not None:
            await cancel_and_wait([self._task])

    def _listen_to_session(self) -> None:
        if not self._is_listening:
            self._is_listening = True
            self._coordination.add_session_listener(self._session_changed)

    def _stop_listening(self) -> None:
        if self._is_listening:
            self._is_listening = False
            self._coordination.remove_session_listener(self._session_changed)

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self.read_again()

    def read_again(self) -> None:
        """Reads everything soon, because what is in memory may be outdated."""
        self._must_read_all = True
        self._wake.set()

    # -- following

    async def catch_up(self) -> None:
        """Applies all changes that other brokers have announced."""
        async with self.lock:
            if not self._must_read_all:
                for each in self._notifications:
                    await each.apply_new()
                return
            self._must_read_all = False
            try:
                await self._read_from_here(self._read_all)
            except BaseException:  # a request may have called: the task must read what was passed over
                self.read_again()
                raise

    async def _read_from_here(self, read_all: Callable[[], Awaitable[None]]) -> None:
        for each in self._notifications:
            await each.skip_to_end()
        await read_all()

    async def _follow(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self.catch_up()
            except CoordinationError as error:
                logger.warning("changed %s cannot be read now: %r", self._what, error)
            except Exception:
                logger.exception("changed %s could not be applied", self._what)
            else:
                continue
            await asyncio.sleep(_READ_AGAIN_AFTER_S)
            self.read_again()
