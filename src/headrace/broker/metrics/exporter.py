"""Serves metrics over HTTP, in Prometheus' text format or OpenMetrics, at ``headrace.metrics.listener``.

prometheus_client implements the formats; this module gives it the values. The event loop only accepts connections. Each
scrape runs on a daemon thread, so there is no thread between scrapes. ``http_endpoints`` has TLS, passwords and limits.
prometheus_client takes long to import, so the broker imports this module only if it serves metrics.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator
from logging import getLogger
from typing import TYPE_CHECKING, cast

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, make_wsgi_app
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from headrace.broker.metrics.families import FAMILIES
from headrace.broker.metrics.family import Family, Kind
from headrace.broker.metrics.telemetry_families import pushed_metrics
from headrace.broker.metrics.values import MetricSources, View
from headrace.broker.start_error import StartError
from headrace.http_endpoints.access import read_access
from headrace.http_endpoints.metrics_server import MetricsServer
from headrace.http_endpoints.protection import Protection
from headrace.properties import ConfigError

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig

logger = getLogger(__name__)

_HINTS = (
    "set headrace.metrics.ssl.certificate.location, headrace.metrics.ssl.key.location and "
    "headrace.metrics.bearer.token.file, or headrace.metrics.allow.insecure=true if the network is trusted"
)


def metrics_protection(config: BrokerConfig) -> Protection:
    """
    :raises ConfigError: if a secret cannot be read.
    """
    prefix = "headrace.metrics."
    access = read_access(
        config.optional_str(prefix + "bearer.token.file"),
        config.optional_str(prefix + "basic.auth.file"),
        os.environ,
        bearer_variable="HEADRACE_METRICS_BEARER_TOKEN",
        basic_variable="HEADRACE_METRICS_BASIC_AUTH",
    )
    return Protection(
        certificate=config.optional_str(prefix + "ssl.certificate.location") or "",
        key=config.optional_str(prefix + "ssl.key.location") or "",
        key_password=config.optional_str(prefix + "ssl.key.password") or "",
        access=access,
        allows_insecure=config.bool(prefix + "allow.insecure"),
    )


def bind_exporter(config: BrokerConfig) -> MetricsExporter:
    """Binds the address that the settings name.

    :raises StartError: if the address cannot be used, or a secret cannot be read.
    """
    wanted = config.str("headrace.metrics.listener")
    host, _, port = wanted.rpartition(":")
    try:
        return MetricsExporter(host.strip("[]"), int(port), metrics_protection(config))
    except ConfigError as error:
        raise StartError(f"cannot serve metrics on {wanted}: {error}") from None
    except OSError as error:
        raise StartError(f"cannot serve metrics on {wanted}: {error.strerror}") from None


class MetricsExporter:
    """An HTTP server. The constructor binds the address, :meth:`start` begins to serve."""

    def __init__(self, host: str, port: int, protection: Protection | None = None) -> None:
        """
        :raises ConfigError: if other hosts can reach the address, and the protection is not enough for that.
        :raises OSError: if the address is in use, or is not an address of this machine.
        """
        self._loop = asyncio.get_running_loop()
        self._server = MetricsServer(host, port, protection or Protection(), hints=_HINTS)
        self.endpoint = self._server.endpoint

    def start(self, sources: MetricSources) -> None:
        registry = CollectorRegistry()
        registry.register(BrokerCollector(sources))
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        self._server.activate(make_wsgi_app(registry))
        self._loop.add_reader(self._server.fileno(), self._server.accept)
        logger.info("serving metrics at %s", self._server.url)

    def stop(self) -> None:
        """Accepts no more connections. A running scrape ends by itself."""
        if self._server.fileno() >= 0:
            self._loop.remove_reader(self._server.fileno())
            self._server.server_close()


class BrokerCollector(Collector):
    """Gives all families of the table, and the metrics that clients have pushed, to prometheus_client."""

    def __init__(self, sources: MetricSources) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        view = View(self._sources)
        for family in FAMILIES:
            # prometheus_client adds the "_total" of a counter.
            metric = Metric(family.name.removesuffix("_total"), family.meaning, family.kind.value)
            # prometheus_client reads the samples once, in order. So an iterator can make them on the fly.
            metric.samples = cast(list[Sample], _Samples(family, view))
            yield metric
        yield from pushed_metrics(self._sources.telemetry)


class _Samples:
    """The samples of a family, made one by one while they are written: 10,000 partitions have 40,000 samples."""

    def __init__(self, family: Family, view: View) -> None:
        assert (family.kind is Kind.COUNTER) == family.name.endswith("_total")
        self._family = family
        self._view = view

    def __iter__(self) -> Iterator[Sample]:
        return _samples(self._family, self._family.values(self._view))


def _samples(family: Family, values: Iterable[tuple[tuple[str, ...], float]]) -> Iterator[Sample]:
    name, labels = family.name, family.labels
    for label_values, value in values:
        # Labels without a value are left out: the sum over all topics has no topic.
        yield Sample(name, dict(zip(labels, label_values, strict=False)), value)
