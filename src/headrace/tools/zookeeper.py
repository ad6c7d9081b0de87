"""``headrace zookeeper``: serves a tree of znodes on ZooKeeper's protocol, in the foreground, until a signal stops it.

The command prints one line per port, ``ready HOST:PORT``, on standard output when it serves; the port with TLS is last.
Everything else goes to standard error. SIGTERM and Ctrl-C end the server cleanly with exit code 0. Sessions stay open,
so that clients resume them after a restart. Every change that was answered survives ``kill -9``.

``--config`` and ``-o`` take settings under ZooKeeper's names (``tools/shared/tree_settings.py``).
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from headrace.coordination.server.logins import Logins
from headrace.coordination.server.service import DEFAULT_TICK_TIME_MS
from headrace.event_loop import new_event_loop
from headrace.properties import ConfigError, parse_overrides, read_properties_file
from headrace.tools.shared.commands import add_overrides, add_version
from headrace.tools.shared.served_tree import TreeNotServed, served_tree
from headrace.tools.shared.stderr_log import log_to_stderr
from headrace.tools.shared.tree_settings import Address, TreeSettings

logger = logging.getLogger("headrace")

_EPILOG = """examples:
  headrace zookeeper
  headrace zookeeper --data /var/lib/headrace-zookeeper --listen 0.0.0.0:2181
  headrace zookeeper --listen 127.0.0.1:0 --tick-time 500
  headrace zookeeper --config zoo.cfg
  headrace zookeeper --secure-listen 0.0.0.0:2182 -o ssl.keyStore.location=zk.pem -o ssl.trustStore.location=ca.pem
"""

_DEFAULT_ADDRESS = ("127.0.0.1", 2181)
_DEFAULT_DATA = Path("headrace-zookeeper")


class StartError(Exception):
    """The server cannot start; the message is one line for the user."""


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    log_to_stderr(options.log_level.upper(), suffix=" (%(name)s)")
    try:
        settings = _settings(options)
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(_serve(options, settings))
    except (StartError, ConfigError) as error:
        sys.stderr.write(f"headrace: {error}\n")
        return 2
    return 0


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="headrace zookeeper",
        description="Serve a tree of znodes on ZooKeeper's protocol. It prints 'ready HOST:PORT' when it serves.\n"
        "It is one server, without an ensemble, SASL, containers and times to live.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", metavar="DIR", type=Path, help=f"the data folder (default ./{_DEFAULT_DATA})")
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="the address to listen on (default 127.0.0.1:2181, unless --secure-listen is given); port 0 picks a free "
        "port",
    )
    parser.add_argument(
        "--secure-listen",
        metavar="HOST:PORT",
        help="the address to listen on with TLS; the key store is the setting ssl.keyStore.location",
    )
    parser.add_argument(
        "--tick-time",
        metavar="MS",
        type=_positive,
        help=f"session timeouts are 2 to 20 ticks, as the client requests (default {DEFAULT_TICK_TIME_MS})",
    )
    parser.add_argument(
        "--config", metavar="FILE", type=Path, help="a zoo.cfg file; the settings are listed in docs/zookeeper.md"
    )
    add_overrides(parser)
    parser.add_argument(
        "--log-level", choices=["debug", "info", "warning", "error"], default="info", help="default %(default)s"
    )
    add_version(parser)
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{value} ms is not a valid tick time")
    return value


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdecimal()) or int(port) > 65535:
        raise StartError(f"{text!r} is not an address; write HOST:PORT")
    return host.strip("[]"), int(port)


def _settings(options: argparse.Namespace) -> TreeSettings:
    """The settings of the file, overridden by ``-o``.

    :raises ConfigError: if a setting is unknown or wrong.
    """
    properties = {} if options.config is None else read_properties_file(options.config)
    return TreeSettings.from_properties(properties | parse_overrides(options.overrides))


def _addresses(options: argparse.Namespace, settings: TreeSettings) -> tuple[Address | None, Address | None]:
    """Returns the addresses to listen on, without TLS and with TLS."""
    secure = settings.secure_address if options.secure_listen is None else _address(options.secure_listen)
    if options.listen is not None:
        return _address(options.listen), secure
    return settings.address or (None if secure else _DEFAULT_ADDRESS), secure


async def _serve(options: argparse.Namespace, settings: TreeSettings) -> None:
    address, secure_address = _addresses(options, settings)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _ask_to_stop, stopping)
    if secure_address is not None and settings.tls is None:
        raise StartError("a port with TLS needs a key store: set ssl.keyStore.location")
    try:
        async with served_tree(
            options.data or settings.data or _DEFAULT_DATA,
            address,
            secure_address=secure_address,
            tls=settings.tls,
            tick_time_ms=options.tick_time or settings.tick_time_ms or DEFAULT_TICK_TIME_MS,
            logins=Logins(super_digest=settings.super_digest),
            max_connections_per_address=settings.max_connections_per_address,
            four_letter_words=settings.four_letter_words,
        ) as tree:
            for bound in tree.addresses:
                sys.stdout.write(f"ready {bound}\n")
            sys.stdout.flush()
            await stopping.wait()
            logger.info("stopping")
    except TreeNotServed as error:
        raise StartError(str(error)) from None


def _ask_to_stop(stopping: asyncio.Event) -> None:
    if stopping.is_set():
        raise SystemExit(1)
    stopping.set()
