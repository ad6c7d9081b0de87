"""Follows the notifications below one znode: sequential znodes that say what has changed elsewhere in the tree.

A client that changes something adds a znode ``PARENT/PREFIXn``, with the name of the changed thing as content. Every
broker watches the parent, and reads the changed things in the order of the numbers. A notification says only that
something has changed, so it does no harm to apply one twice, or to read it late. Notifications are deleted when they
are 15 minutes old. A broker that was away for longer, or whose session was lost, must read everything again
(:meth:`TreeNotifications.skip_to_end`).
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
_NONE_APPLIED = -1


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
        #: The number of the last notification that was applied.
        self._applied = _NONE_APPLIED

    async def skip_to_end(self) -> None:
        """Watches the parent, and passes over all notifications that exist: the caller reads everything next."""
        self._applied = max(await self._read(), default=_NONE_APPLIED)

    async def apply_new(self) -> None:
        """Applies the notifications that are new, and deletes the old ones."""
        changes = await self._read()
        for number in sorted(changes):
            if number > self._applied:
                with suppress(NoNodeError):  # another broker has deleted it because of its age
                    content, _ = await self._coordination.get(changes[number])
                    await self._apply(content)
                self._applied = number
        await self._delete_old([changes[number] for number in sorted(changes)])

    async def _read(self) -> dict[int, str]:
        """Returns the paths of all notifications, by their numbers."""
        names = await self._coordination.children(self._parent, watch=self._notified)
        numbers = ((name.removeprefix(self._prefix), name) for name in names if name.startswith(self._prefix))
        return {int(number): f"{self._parent}/{name}" for number, name in numbers if number.isdecimal()}

    def _notified(self, _: WatchEvent) -> None:
        self._on_changed()

    async def _delete_old(self, paths: list[str]) -> None:
        """Deletes old notifications, the oldest first."""
        for path in paths:
            stat = await self._coordination.exists(path)
            if stat is not None and self._clock.wall_ms() - stat.ctime_ms <= KEPT_MS:
                return
            with suppress(CoordinationError):
                await self._coordination.delete(path)
