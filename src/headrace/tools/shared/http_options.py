"""Options of the commands that serve HTTP (address, TLS, credentials), and serving until a signal."""

from __future__ import annotations

import asyncio
import signal
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from headrace.tools.shared.client_properties import run_loop
from headrace.tools.shared.commands import UsageError

if TYPE_CHECKING:
    from headrace.http_endpoints.protection import Protection


def add_http_protection(parser: ArgumentParser) -> None:
    """Adds the options. Secrets are never arguments: other users of the host can read arguments."""
    group = parser.add_argument_group(
        "protection of HTTP",
        "An address that other hosts can reach needs TLS, and a token or a password. Without the files, "
        "HEADRACE_HTTP_BEARER_TOKEN and HEADRACE_HTTP_BASIC_AUTH of the environment are used.",
    )
    group.add_argument("--tls-certificate", metavar="FILE", help="serve HTTPS with this certificate chain (PEM)")
    group.add_argument("--tls-key", metavar="FILE", help="its key (PEM; default: in the certificate's file)")
    group.add_argument("--bearer-token-file", metavar="FILE", help="answer clients that send the token in this file")
    group.add_argument("--basic-auth-file", metavar="FILE", help="answer clients that send this USER:PASSWORD")
    group.add_argument(
        "--insecure", action="store_true", help="serve any address, also without TLS and without a secret"
    )


def protection_of(options: Namespace, environment: Mapping[str, str]) -> Protection:
    """Returns the protection that the options ask for.

    :raises ConfigError: if a secret cannot be read.
    """
    from headrace.http_endpoints.access import read_access
    from headrace.http_endpoints.protection import Protection

    access = read_access(
        options.bearer_token_file,
        options.basic_auth_file,
        environment,
        bearer_variable="HEADRACE_HTTP_BEARER_TOKEN",
        basic_variable="HEADRACE_HTTP_BASIC_AUTH",
    )
    return Protection(
        certificate=options.tls_certificate or "",
        key=options.tls_key or "",
        key_password=environment.get("HEADRACE_HTTP_TLS_KEY_PASSWORD", ""),
        access=access,
        allows_insecure=options.insecure,
    )


def address(text: str) -> tuple[str, int]:
    """Parses the value of an option with an address."""
    host, colon, port = text.rpartition(":")
    host = host.strip("[]")
    if not colon or not host or not (port.isascii() and port.isdecimal()) or int(port) > 65_535:
        raise ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return host, int(port)


def require_packages(extra: str, packages: Mapping[str, str]) -> None:
    """
    :param extra: the extra of Headrace with these packages; the command has the same name.
    :param packages: the packages, by a module of each.
    :raises UsageError: if a package is not installed.
    """
    missing = [package for module, package in packages.items() if find_spec(module) is None]
    if missing:
        raise UsageError(f"the {extra} needs {', '.join(missing)}: run pip install 'headrace[{extra}]'")


def serve_until_signal(serving: Coroutine[Any, Any, None]) -> None:
    """Runs a server. A signal ends the start, too: the server has its own handlers only when it runs."""
    run_loop(_until_signal(serving))


async def _until_signal(serving: Coroutine[Any, Any, None]) -> None:
    task = asyncio.ensure_future(serving)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with suppress(asyncio.CancelledError):
        await task
