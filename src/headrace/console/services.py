"""Holds what all requests share: the settings, the visitors, the reader without a user, the samples, the audit log."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.console.cluster.reader import ClusterReader
from headrace.console.protection.audit import AuditLog
from headrace.console.protection.hosts import Hosts
from headrace.console.protection.sessions import Sessions
from headrace.console.settings import Settings
from headrace.properties import ConfigError
from headrace.runtime.clock import Clock, SystemClock


@dataclass
class Services:
    """The parts of one console. ``reader`` is for visitors without a login; None if the console asks for one."""

    settings: Settings
    clock: Clock = field(default_factory=SystemClock)
    sessions: Sessions = field(init=False)
    audit: AuditLog = field(init=False)
    hosts: Hosts = field(init=False)
    reader: ClusterReader | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.sessions = Sessions(self.clock)
        self.audit = AuditLog(self.settings.data, self.clock)
        self.hosts = Hosts(self.settings.host, self.settings.allowed_hosts)
        if not self.settings.needs_login:
            self.reader = ClusterReader(self.settings.clients, self.clock)

    async def start(self) -> None:
        """Prepares the data folder.

        :raises ConfigError: if the folder cannot be used.
        """
        folder = self.settings.data
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            except OSError as error:
                raise ConfigError(f"--data {folder}: {error.strerror}; choose a folder that can be written") from None

    async def close(self) -> None:
        await self.sessions.close()
        if self.reader is not None:
            await self.reader.close()
