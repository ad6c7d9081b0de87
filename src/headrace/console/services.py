"""Holds what all requests share: the settings, the visitors, the reader without a user, the samples, the audit log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from headrace.console.cluster.reader import ClusterReader
from headrace.console.history.history import History
from headrace.console.metrics import ConsoleCounts, ConsoleValues
from headrace.console.protection.audit import AuditLog
from headrace.console.protection.hosts import Hosts
from headrace.console.protection.sessions import Sessions
from headrace.console.records.record_services import RecordServices
from headrace.console.settings import Settings
from headrace.console.view_samples import view_measures
from headrace.console.views.project import ViewsProject
from headrace.properties import ConfigError
from headrace.runtime.clock import Clock, SystemClock


@dataclass
class Services:
    """The parts of one console.

    :ivar is_stopping: whether the server is about to end. Live pages end then.
    :ivar reader: for visitors without a login; None if the console asks for one.
    """

    settings: Settings
    clock: Clock
    is_stopping: Callable[[], bool] = lambda: False
    sessions: Sessions = field(init=False)
    audit: AuditLog = field(init=False)
    hosts: Hosts = field(init=False)
    records: RecordServices = field(init=False)
    history: History = field(init=False)
    views: ViewsProject = field(init=False)
    counts: ConsoleCounts = field(default_factory=ConsoleCounts)
    reader: ClusterReader | None = field(init=False)
    _sampling: ClusterReader | None = field(init=False)

    @classmethod
    def open(cls, settings: Settings, clock: Clock | None = None) -> Services:
        """Makes the data folder, and the services.

        :raises ConfigError: if the folder or the file of the samples cannot be used.
        """
        folder = settings.data
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            except OSError as error:
                raise ConfigError(f"--data {folder}: {error.strerror}; choose a folder that can be written") from None
        return cls(settings, clock or SystemClock())

    def __post_init__(self) -> None:
        settings = self.settings
        self.sessions = Sessions(self.clock)
        self.audit = AuditLog(settings.data, self.clock)
        self.hosts = Hosts(settings.host, settings.allowed_hosts)
        self.records = RecordServices(settings)
        self.reader = None if settings.needs_login else ClusterReader(settings.clients, self.clock)
        # Without a login, the sampler has the rights of all visitors, and asks by the same client.
        self._sampling = self.reader
        if settings.needs_login and settings.sampler is not None:
            self._sampling = ClusterReader(settings.sampler, self.clock)
        self.views = ViewsProject(settings.project, self.clock, needs_login=settings.needs_login)
        sampled_views = None if settings.project is None or settings.needs_login else partial(view_measures, self.views)
        self.history = History(settings, self.clock, self._sampling, sampled_views)

    def metric_values(self) -> ConsoleValues:
        """Returns the values of ``/metrics``."""
        sample = self.history.latest
        age_s = None if sample is None else (self.clock.wall_ms() - sample.time_ms) / 1_000
        live_pages, searches = self.sessions.live_pages, self.records.searches.running
        return ConsoleValues(self.counts, len(self.sessions), live_pages, searches, age_s)

    async def close(self) -> None:
        await self.records.close()
        await self.history.close()
        await self.views.close()
        await self.sessions.close()
        for reader in {self.reader, self._sampling}:
            if reader is not None:
                await reader.close()
