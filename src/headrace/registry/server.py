"""Runs a registry: the topic, the election and the HTTP server, until a signal."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.client.cluster import Cluster
from headrace.client.config import AdminConfig
from headrace.http_endpoints.asgi_server import AsgiServer
from headrace.http_endpoints.protection import Protection
from headrace.registry.cluster.forwarding import Forwarder
from headrace.registry.cluster.journal import TopicJournal
from headrace.registry.cluster.leadership import Leadership
from headrace.registry.cluster.membership import Identity, Membership
from headrace.registry.cluster.topic import prepare_topic
from headrace.registry.http.application import UNAUTHORIZED, Application
from headrace.registry.registry import Registry
from headrace.registry.state import RegistryState


@dataclass(frozen=True)
class Settings:
    """
    :param advertised: the address that other registries use; empty host and port 0 stand for the served address.
    :param admin, consumer, producer: the options of the clients.
    """

    host: str
    port: int
    topic: str
    group: str
    admin: Mapping[str, object]
    consumer: Mapping[str, object]
    producer: Mapping[str, object]
    advertised: tuple[str, int] = ("", 0)
    certificates: str = ""
    protection: Protection = field(default_factory=Protection)


async def serve(settings: Settings) -> None:
    """Serves until SIGTERM or Ctrl-C. Prints ``ready HOST:PORT`` when the registry has read the topic and listens.

    :raises ConfigError: if the address or the topic cannot be used.
    :raises HeadraceError: if the brokers do not answer.
    """
    state = RegistryState()
    await prepare_topic(settings.admin, settings.topic)
    journal = TopicJournal(state, settings.topic, settings.group, settings.consumer, settings.producer)
    cluster = Cluster(AdminConfig.load(settings.admin))
    registry = Registry(
        state,
        journal,
        lambda: {"kafka-cluster": cluster.metadata.cluster_id or "", "schema-registry-cluster": settings.group},
    )
    leadership, forwarder = Leadership(journal), Forwarder(settings.certificates)
    server = AsgiServer(
        Application(registry, leadership, forwarder),
        settings.host,
        settings.port,
        settings.protection,
        unauthorized=UNAUTHORIZED,
    )
    identity = _identity(settings, server.port)
    membership = Membership(cluster, settings.group, identity, leadership.on_leader)
    joined: asyncio.Task[None] | None = None
    try:
        await journal.start()
        joined = asyncio.create_task(membership.run())
        for task in (joined, journal.reading):
            task.add_done_callback(lambda _: server.stop())
        shown = f"[{settings.host}]" if ":" in settings.host else settings.host
        sys.stdout.write(f"ready {shown}:{server.port}\n")
        sys.stdout.flush()
        await server.serve()
        for task in (joined, journal.reading):
            if task.done():
                await task  # It does not end by itself: this raises the mistake that ended it.
    finally:
        server.close()
        if joined is not None:
            joined.cancel()
            await asyncio.gather(joined, return_exceptions=True)
            await membership.leave()
        await leadership.close()
        await journal.close()
        await cluster.close()
        forwarder.close()
        registry.close()


def _identity(settings: Settings, port: int) -> Identity:
    import socket

    host, advertised_port = settings.advertised
    if not host:
        host = socket.getfqdn() if settings.host in ("", "0.0.0.0", "::") else settings.host
    return Identity(host, advertised_port or port, settings.protection.scheme)
