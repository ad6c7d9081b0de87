"""Counts what the connections of one client do: per broker, and together.

A request is counted once, at its broker. The metrics of the whole client read the sensors of all brokers together. All
connections to a broker share its sensors.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.client.metrics.registry import MetricsRegistry
from headrace.client.metrics.sensor import Sensor
from headrace.client.metrics.table import CONNECTIONS, NODE


class ConnectionMetrics:
    """The sensors of all connections of one client."""

    __slots__ = ("_nodes", "_registry", "clock", "closed", "count", "logged_in", "opened", "rejected", "throttle")

    def __init__(self, registry: MetricsRegistry) -> None:
        self._registry = registry
        self.clock = registry.clock
        self._nodes: dict[int, NodeMetrics] = {}
        self.count = 0
        self.opened, self.closed = registry.sensor(), registry.sensor()
        self.logged_in, self.rejected = registry.sensor(), registry.sensor()
        #: The throttle time of each response. The client gives it a name.
        self.throttle = registry.sensor()
        registry.add(
            "metrics",
            CONNECTIONS,
            {
                "opened": self.opened,
                "closed": self.closed,
                "count": lambda: self.count,
                "logged_in": self.logged_in,
                "rejected": self.rejected,
                "sent": lambda: [node.sent for node in self._all()],
                "received": lambda: [node.received for node in self._all()],
            },
        )

    def of_node(self, node_id: int) -> NodeMetrics:
        """Returns the sensors of one broker. The addresses of ``bootstrap.servers`` have negative ids, as in Java."""
        node = self._nodes.get(node_id)
        if node is None:
            node = NodeMetrics(self, self._registry)
            self._registry.add("node-metrics", NODE, node.sources(), node_id=f"node-{node_id}")
            self._nodes[node_id] = node
        return node

    def latencies(self) -> Iterable[Sensor]:
        return [node.latency for node in self._all()]

    def _all(self) -> list[NodeMetrics]:
        return list(self._nodes.values())

    def connection_opened(self) -> None:
        self.count += 1
        self.opened.record(1, self.clock.monotonic_ms())

    def connection_closed(self) -> None:
        self.count -= 1
        self.closed.record(1, self.clock.monotonic_ms())


class NodeMetrics:
    """The sensors of one broker."""

    __slots__ = ("_throttle", "client", "clock", "latency", "received", "sent")

    def __init__(self, client: ConnectionMetrics, registry: MetricsRegistry) -> None:
        self.client = client
        self.clock = registry.clock
        self.sent, self.received, self.latency = registry.sensor(), registry.sensor(), registry.sensor()
        self._throttle = client.throttle

    def sources(self) -> dict[str, Sensor]:
        return {"sent": self.sent, "received": self.received, "latency": self.latency}

    def request_sent(self, size_bytes: int) -> None:
        self.sent.record(size_bytes, self.clock.monotonic_ms())

    def response_received(self, size_bytes: int, throttle_ms: float) -> None:
        now_ms = self.clock.monotonic_ms()
        self.received.record(size_bytes, now_ms)
        self._throttle.record(throttle_ms, now_ms)
