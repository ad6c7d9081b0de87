"""Runs a console: the services, the samples and the HTTP server, until a signal."""

from __future__ import annotations

import sys
from dataclasses import replace

from headrace.console.application import build_application
from headrace.console.services import Services
from headrace.console.settings import Settings
from headrace.http_endpoints.asgi_server import AsgiServer
from headrace.http_endpoints.protection import Protection


async def serve(settings: Settings) -> None:
    """Serves until SIGTERM or Ctrl-C. Prints ``ready HOST:PORT`` when the console listens.

    The console starts although the cluster is away: the pages then say so.

    :raises ConfigError: if the address or the data folder cannot be used.
    """
    services = Services.open(settings)
    try:
        server = AsgiServer(build_application(services), settings.host, settings.port, needed_protection(settings))
        services.is_stopping = lambda: server.is_stopping
        try:
            services.history.start()
            shown = f"[{settings.host}]" if ":" in settings.host else settings.host
            sys.stdout.write(f"ready {shown}:{server.port}\n")
            sys.stdout.flush()
            await server.serve()
        finally:
            server.close()
    finally:
        await services.close()


def needed_protection(settings: Settings) -> Protection:
    """The protection of HTTP. With TLS, the login of the cluster is the secret that an open address needs."""
    protection = settings.protection
    if settings.needs_login and protection.certificate:
        return replace(protection, allows_insecure=True)
    return protection
