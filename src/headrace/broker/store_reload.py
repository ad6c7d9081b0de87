"""Reads key and trust stores again while the broker runs, as Kafka does: when a client has sent settings of the broker.

Kafka reads a store again if a setting of the store changes, or if AlterConfigs sends a setting again whose file has
changed. A changed file alone changes nothing: a certificate that is half written is never used.

The files are read on a thread, because key stores with many iterations take a second. One reload runs at a time, and
the last one has read the present settings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from logging import getLogger
from typing import TYPE_CHECKING, Generic, TypeVar

from headrace.properties import ConfigError

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.thread_pool import RunBlocking

logger = getLogger(__name__)

T = TypeVar("T")


class StoreReload(Generic[T]):
    def __init__(
        self,
        config: BrokerConfig,
        run_blocking: RunBlocking,
        what: str,
        *,
        read: Callable[[BrokerConfig], T | None],
        use: Callable[[T], None],
    ) -> None:
        """
        :param what: whose stores these are, for the log.
        :param read: reads the stores on a thread. It returns None if nothing has changed, and raises ConfigError if
            they cannot be used.
        :param use: takes what was read, on the loop.
        """
        self._config = config
        self._run_blocking = run_blocking
        self._what = what
        self._read = read
        self._use = use
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        config.on_any_change(self._settings_changed)
        config.on_sent_again(self.reload)

    def stop(self) -> None:
        """Does not follow the settings any more."""
        self._config.remove_callbacks(self._settings_changed, self.reload)

    async def reload(self) -> None:
        async with self._lock:
            try:
                found = await self._run_blocking(self._read, self._config.snapshot())
            except ConfigError as error:
                logger.error("%s keeps its key and trust stores: %s", self._what, error)
                return
            if found is not None:
                self._use(found)
                logger.info("%s uses new key and trust stores for new connections", self._what)

    def _settings_changed(self, names: frozenset[str]) -> None:
        if any(".ssl." in name or name.startswith("ssl.") for name in names):
            task = asyncio.get_running_loop().create_task(self.reload())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
