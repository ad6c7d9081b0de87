"""Metrics over HTTP, in Prometheus' text format (and OpenMetrics), at ``headrace.metrics.listener``.

prometheus_client does the formats and the HTTP; this module gives it the values. The event loop only accepts; each
scrape then runs on a daemon thread, so there is no thread while nobody scrapes. Nothing of prometheus_client is
imported by a broker that serves no metrics: this module is loaded when it is wanted.
"""

from __future__ import annotations

import asyncio
import socket
import socketserver
from collections.abc import Iterable, Iterator
from logging import getLogger
from typing import TYPE_CHECKING, cast
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, make_wsgi_app
from prometheus_client.core import Metric
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from headrace.broker.metrics.families import FAMILIES, Family, Kind
from headrace.broker.metrics.values import View

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

logger = getLogger(__name__)

_IDLE_CLIENT_SECONDS = 10.0


class MetricsExporter:
    """Bound when made, serving when started, gone when closed."""

    def __init__(self, broker: Broker, host: str, port: int) -> None:
        """
        :raises OSError: if the address is taken or is not ours.
        """
        self._loop = asyncio.get_running_loop()
        registry = CollectorRegistry()
        registry.register(BrokerCollector(broker))
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        self._server = _server_for(host, port)
        self._server.set_app(make_wsgi_app(registry))
        self.endpoint: tuple[str, int] = self._server.server_address[:2]  # type: ignore[assignment]

    def start(self) -> None:
        self._server.server_activate()
        self._loop.add_reader(self._server.fileno(), self._server.handle_request)
        logger.info("metrics are at http://%s:%d/metrics", *self.endpoint)

    def close(self) -> None:
        """Accepts no more. A scrape that is under way ends by itself."""
        if self._server.fileno() >= 0:
            self._loop.remove_reader(self._server.fileno())
            self._server.server_close()


class BrokerCollector(Collector):
    """Every family of the table, for prometheus_client."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def collect(self) -> Iterator[Metric]:
        view = View(self._broker)
        for family in FAMILIES:
            # prometheus_client writes a counter's "_total" itself.
            metric = Metric(family.name.removesuffix("_total"), family.meaning, family.kind.value)
            # It reads samples once, from first to last, so they may be made while it does.
            metric.samples = cast(list[Sample], _Samples(family, view))
            yield metric


class _Samples:
    """A family's samples, made one by one while they are written: 10,000 partitions have 40,000 of them."""

    def __init__(self, family: Family, view: View) -> None:
        assert (family.kind is Kind.COUNTER) == family.name.endswith("_total")
        self._family = family
        self._view = view

    def __iter__(self) -> Iterator[Sample]:
        return _samples(self._family, self._family.values(self._view))


def _samples(family: Family, values: Iterable[tuple[tuple[str, ...], float]]) -> Iterator[Sample]:
    name, labels = family.name, family.labels
    for label_values, value in values:
        # A label without a value is left out: the sum over all topics has no topic.
        yield Sample(name, dict(zip(labels, label_values, strict=False)), value)


class _Server(ThreadingWSGIServer):
    #: The loop calls when a client is there, so there is nothing to wait for.
    timeout = 0

    def server_bind(self) -> None:
        # Not HTTPServer's own: that asks DNS for the name of our address, and nobody needs it.
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
