"""Chooses where the metrics of brokers come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.console.broker_metrics.endpoints import Endpoints
from headrace.console.broker_metrics.prometheus import Prometheus
from headrace.http_endpoints.access import Access
from headrace.runtime.clock import Clock

MetricsSource = Prometheus | Endpoints


@dataclass(frozen=True)
class MetricsSettings:
    """
    :param prometheus: the address of a Prometheus; empty if there is none.
    :param labels: what the series of the cluster have there.
    :param endpoints: the metrics endpoints of brokers.
    :param access: the secret that is sent to these addresses.
    """

    prometheus: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    endpoints: tuple[str, ...] = ()
    access: Access = field(default_factory=Access)

    @property
    def is_given(self) -> bool:
        return bool(self.prometheus or self.endpoints)


def metrics_source(settings: MetricsSettings, clock: Clock) -> MetricsSource | None:
    """The source that the command line names; None if it names none."""
    if settings.prometheus:
        return Prometheus(settings.prometheus, settings.labels, settings.access, clock)
    if settings.endpoints:
        return Endpoints(settings.endpoints, settings.access, clock)
    return None
