"""Follows the notifications below one znode: sequential znodes that say what has changed elsewhere in the tree.

A client that changes something adds a znode ``PARENT/PREFIXn``, with the name of the changed thing as content. Every
broker watches the parent, and reads the changed things in the order of the numbers. A notification says only that
something has changed, so it does no harm to apply one twice, or to read it late. Notifications are deleted when they
are 15 minutes old. A broker that was away for longer, or whose session was lost, must read everything again
(:meth:`TreeNotifications.skip_to_end`).

There may be ten thousand notifications, and every change makes each broker list them. ZooKeeper pads the numbers with
zeros to ten digits, so the names have the order of the numbers. A list is only searched for names after the last one
that was applied; the other names are not parsed. The ages are looked at when the oldest notification is due.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.coordination.interface import CoordinationError, NoNodeError, WatchEvent

if TYPE_CHECKING:
    from headrace.coordination.interface import Coordination
    from headrace.runtime.clock import Clock

#: How long notifications are kept.
KEPT_MS = 15 * 60_000
_DIGITS = 10
_NONE_APPLIED = ""


class TreeNotifications:
    def __init__(
        self,
        coordination: Coordination,
        clock: Clock,
        parent: str,
        prefix: str,
        *,
        apply: Callable[[bytes], Awaitable[None]],
        on_changed: Callable[[], object],
    ) -> None:
        """
        :param apply: is called with the content of each new notification, in order.
        :param on_changed: is called when there are new notifications. It makes a call of :meth:`apply_new` happen.
        """
        self._coordination = coordination
        self._clock = clock
        self._parent = parent
        self._prefix = prefix
        self._apply = apply
        self._on_changed = on_changed
        #: The name of the last notification that was applied.
        self._applied = _NONE_APPLIED
        #: No notification is old enough to be deleted before.
        self._next_deletion_ms = 0

    async def skip_to_end(self) -> None:
        """Watches the parent, and passes over all notifications that exist: the caller reads everything next."""
        self._applied = max(filter(self._is_notification, await self._names()), default=_NONE_APPLIED)

    async def apply_new(self) -> None:
        """Applies the notifications that are new, and deletes the old ones."""
        names = await self._names()
        applied = self._applied
        for name in sorted(name for name in names if name > applied and self._is_notification(name)):
            with suppress(NoNodeError):  # another broker has deleted it because of its age
                content, _ = await self._coordination.get(f"{self._parent}/{name}")
                await self._apply(content)
            self._applied = name
        if self._clock.wall_ms() >= self._next_deletion_ms:
            await self._delete_old(sorted(filter(self._is_notification, names)))

    async def _names(self) -> list[str]:
        """Returns the names of all children, and watches for more."""
        return await self._coordination.children(self._parent, watch=self._notified)

    def _is_notification(self, name: str) -> bool:
        size = len(self._prefix)
        has_the_form = len(name) == size + _DIGITS and name.isascii()
        return has_the_form and name.startswith(self._prefix) and name[size:].isdecimal()

    def _notified(self, _: WatchEvent) -> None:
        self._on_changed()

    async def _delete_old(self, names: list[str]) -> None:
        """Deletes old notifications, the oldest first."""
        now_ms = self._clock.wall_ms()
        for name in names:
            path = f"{self._parent}/{name}"
            stat = await self._coordination.exists(path)
            if stat is not None and now_ms - stat.ctime_ms <= KEPT_MS:
                self._next_deletion_ms = min(now_ms, stat.ctime_ms) + KEPT_MS + 1
                return
            with suppress(CoordinationError):
                await self._coordination.delete(path)
        self._next_deletion_ms = now_ms + KEPT_MS
