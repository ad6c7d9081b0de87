"""Serves the metrics of a runner over HTTP, in Prometheus' text format and OpenMetrics.

prometheus_client implements the formats and the HTTP server, which has its own threads.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, start_http_server
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from headrace.pipeline.serving.errors import ServingError
from headrace.pipeline.version.metrics import FAMILIES, LABELS, STATE, PipelineMetrics


class MetricsServer:
    """Serves from its construction until ``close``."""

    def __init__(self, metrics: PipelineMetrics, host: str, port: int) -> None:
        """
        :raises ServingError: if the address is in use, or is not an address of this machine.
        """
        registry = CollectorRegistry()
        registry.register(_PipelineCollector(metrics))
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise ServingError(
                f"cannot serve metrics on {host}:{port}: {error.strerror or error}; choose another address"
            ) from None
        self.port: int = self._server.server_port

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _PipelineCollector(Collector):
    def __init__(self, metrics: PipelineMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        versions = self._metrics.snapshot()
        for family in FAMILIES:
            # prometheus_client appends "_total" to the names of counters itself.
            metric = Metric(family.name.removesuffix("_total"), family.meaning, family.kind)
            for (view, version), counts in versions.items():
                value = family.value(counts)
                labels = dict(zip(LABELS, (view, str(version)), strict=True))
                if family.name == STATE:
                    labels["state"] = counts.state
                if value is not None:
                    metric.add_sample(family.name, labels, value)
            yield metric
