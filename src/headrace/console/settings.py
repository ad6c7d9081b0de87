"""Holds what the command line gives the console."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.console.broker_metrics.source import MetricsSettings
from headrace.console.oidc.settings import OidcSettings
from headrace.http_endpoints.protection import Protection


@dataclass(frozen=True)
class Settings:
    """
    :param clients: the options of admin clients, by Kafka's names; with ``needs_login`` without user and password.
    :param sampler: with ``needs_login`` the options of the client that samples the cluster; None: nothing is sampled.
    :param needs_login: whether each visitor logs in with a user of the cluster.
    :param oidc: the OpenID provider that visitors log in by; None if they log in with a password.
    :param project: the folder of a project of views; None if there is none.
    :param data: the folder for samples and the audit log; None: samples stay in memory, audit lines go to the log.
    :param masks: the names of fields whose values no page shows.
    :param registry: the address of a schema registry; empty if there is none.
    :param metrics: where the metrics of the brokers are.
    :param allowed_hosts: names, besides the address that is served, that a browser may use for the console.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    clients: Mapping[str, object] = field(default_factory=dict)
    sampler: Mapping[str, object] | None = None
    needs_login: bool = False
    oidc: OidcSettings | None = None
    project: Path | None = None
    data: Path | None = None
    is_read_only: bool = False
    masks: tuple[str, ...] = ()
    registry: str = ""
    allowed_hosts: tuple[str, ...] = ()
    sample_seconds: float = 10.0
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    protection: Protection = field(default_factory=Protection)

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of the brokers, as a command line has them."""
        given = self.clients["bootstrap.servers"]
        return given if isinstance(given, str) else ",".join(map(str, given))  # type: ignore[call-overload]
