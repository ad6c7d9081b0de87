"""Serves metrics over HTTP, in Prometheus' text format or OpenMetrics, at ``headrace.metrics.listener``.

prometheus_client implements the formats and HTTP; this module gives it the values. The event loop only accepts
connections. Each scrape runs on a daemon thread, so there is no thread between scrapes. prometheus_client takes long to
import, so the broker imports this module only if it serves metrics.
"""

from __future__ import annotations

import asyncio
import socket
import socketserver
from collections.abc import Iterable, Iterator
from logging import getLogger
from typing import cast
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, make_wsgi_app
from prometheus_client.core import Metric
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from headrace.broker.metrics.families import FAMILIES
from headrace.broker.metrics.family import Family, Kind
from headrace.broker.metrics.values import MetricSources, View

logger = getLogger(__name__)

_IDLE_CLIENT_SECONDS = 10.0


class MetricsExporter:
    """An HTTP server. The constructor binds the address, :meth:`start` begins to serve."""

    def __init__(self, host: str, port: int) -> None:
        """
        :raises OSError: if the address is in use, or is not an address of this machine.
        """
        self._loop = asyncio.get_running_loop()
        self._server = _server_for(host, port)
        self.endpoint: tuple[str, int] = self._server.server_address[:2]  # type: ignore[assignment]

    def start(self, sources: MetricSources) -> None:
        registry = CollectorRegistry()
        registry.register(BrokerCollector(sources))
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        self._server.set_app(make_wsgi_app(registry))
        self._server.server_activate()
        self._loop.add_reader(self._server.fileno(), self._server.handle_request)
        logger.info("serving metrics at http://%s:%d/metrics", *self.endpoint)

    def stop(self) -> None:
        """Accepts no more connections. A running scrape ends by itself."""
        if self._server.fileno() >= 0:
            self._loop.remove_reader(self._server.fileno())
            self._server.server_close()


class BrokerCollector(Collector):
    """Gives all families of the table to prometheus_client."""

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


class _Server(ThreadingWSGIServer):
    #: The loop calls the server only when a client has connected, so accepting never waits.
    timeout = 0

    def server_bind(self) -> None:
        # HTTPServer.server_bind would ask DNS for the name of the address, which is slow and not needed.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002  as in the base class
        logger.info("a scrape of %s failed", client_address, exc_info=True)


class _Handler(WSGIRequestHandler):
    timeout = _IDLE_CLIENT_SECONDS

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its name in the base class
        logger.debug(format, *args)


def _server_for(host: str, port: int) -> _Server:
    family, _, _, _, address = socket.getaddrinfo(
        host or "0.0.0.0", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    kind = type("_Server", (_Server,), {"address_family": family})
    server: _Server = kind(address[:2], _Handler, bind_and_activate=False)
    try:
        server.server_bind()
    except OSError:
        server.server_close()
        raise
    return server
