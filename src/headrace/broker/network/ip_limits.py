"""Limits the connections of each address: ``max.connections.per.ip`` and its overrides.

The overrides are read once per change. Names of hosts are resolved at the start, where a name without an address stops
the broker, and after a change on a thread. If a changed name cannot be resolved, the earlier overrides stay in force.
The broker that receives the change refuses it (``configs/alter.py``); only other brokers get that far.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from logging import getLogger
from typing import TYPE_CHECKING

from headrace.broker.configs.ip_overrides import IP_OVERRIDES, has_names, resolved_overrides
from headrace.broker.start_error import StartError
from headrace.properties import ConfigError

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.thread_pool import RunBlocking

logger = getLogger(__name__)


class IpLimits:
    """The limit of each address."""

    def __init__(self, config: BrokerConfig, run_blocking: RunBlocking) -> None:
        """
        :raises StartError: if the overrides name a host that has no address.
        """
        self._config = config
        self._run_blocking = run_blocking
        try:
            self._overrides: Mapping[str, int] = resolved_overrides(config.str(IP_OVERRIDES))
        except ConfigError as error:
            raise StartError(str(error)) from None
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        config.on_change(IP_OVERRIDES, lambda _: self._changed())

    def of(self, ip: str) -> int:
        """
        :param ip: an address as ``address_of`` writes it.
        """
        limit = self._overrides.get(ip)
        return self._config.int("max.connections.per.ip") if limit is None else limit

    def _changed(self) -> None:
        text = self._config.str(IP_OVERRIDES)
        if not has_names(text) and not self._tasks:
            self._overrides = resolved_overrides(text)
            return
        task = asyncio.get_running_loop().create_task(self._resolve())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _resolve(self) -> None:
        async with self._lock:
            try:
                self._overrides = await self._run_blocking(resolved_overrides, self._config.str(IP_OVERRIDES))
            except ConfigError as error:
                logger.error("the earlier limits per address stay in force: %s", error)
