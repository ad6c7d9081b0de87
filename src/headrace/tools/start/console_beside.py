"""Runs ``headrace console`` beside a broker, for ``headrace start --console``.

The console is a process of its own and an ordinary client, so it takes no time from the broker's event loop. It starts
before the broker says that it is ready: an address that cannot be used ends the start. Later the console may end
without the broker; the log then has the command that starts it again. When ``headrace start`` is killed, the kernel
kills the console.
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from logging import getLogger
from pathlib import Path

from headrace.broker.broker import StartError
from headrace.broker.configs.broker_config import BrokerConfig
from headrace.properties import ConfigError, read_properties_file
from headrace.tools.start.children import HEADRACE, dying_with_parent

logger = getLogger("headrace")
_START_SECONDS = 30.0
_STOP_SECONDS = 5.0
_EVERY_ADDRESS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


class ConsoleNotStarted(StartError):
    """The console does not serve; it has printed the reason."""


def listener_of_console(config: BrokerConfig, client_options: Path | None) -> str:
    """The name of the listener that the console connects to: the first one with the protocol of its options.

    :raises ConfigError: if no listener has the protocol.
    """
    given = {} if client_options is None else read_properties_file(client_options)
    protocol = given.get("security.protocol", "PLAINTEXT").strip().upper()
    for listener in config.listeners.bound:
        if listener.protocol == protocol:
            return listener.name
    raise ConfigError(
        f"--console: no listener has the protocol {protocol}; give --console-config a file with client options, such "
        f"as security.protocol={config.listeners.bound[0].protocol}"
    )


def address_text(host: str, port: int) -> str:
    """The address of a listener as a client uses it."""
    host = _EVERY_ADDRESS.get(host, host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@asynccontextmanager
async def console_beside(
    options: argparse.Namespace, addresses: Iterable[str], metrics: Iterable[str] = ()
) -> AsyncIterator[None]:
    """Keeps a console for the brokers at the addresses, if ``--console`` asks for one.

    :param metrics: the addresses of the brokers' metrics.
    :raises ConsoleNotStarted: if the console does not serve.
    """
    if options.console is None:
        yield
        return
    words = ["console", "--listen", options.console, "--bootstrap-server", ",".join(addresses)]
    words += [] if options.console_config is None else ["--command-config", str(options.console_config)]
    words += [word for each in metrics for word in ("--broker-metrics", f"http://{each}/metrics")]
    words += ["--log-level", options.log_level]
    # In a process session of its own, so that only the parent gets Ctrl-C.
    process = await asyncio.create_subprocess_exec(
        *HEADRACE,
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
        preexec_fn=dying_with_parent(),
    )
    watching = None
    try:
        address = await _ready(process)
        logger.info("the console is at http://%s, as process %d", address, process.pid)
        watching = asyncio.create_task(_watch(process, shlex.join(["headrace", *words])))
        yield
    finally:
        if watching is not None:
            watching.cancel()
        await _end(process)


async def _ready(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), _START_SECONDS)).decode()
    except TimeoutError:
        raise ConsoleNotStarted(f"the console was not ready within {_START_SECONDS:g} s") from None
    if not line.startswith("ready "):
        raise ConsoleNotStarted("the console did not start")
    return line.removeprefix("ready ").strip()


async def _watch(process: asyncio.subprocess.Process, command_line: str) -> None:
    code = await process.wait()
    logger.error("the console has ended with exit code %d; to start it again: %s", code, command_line)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _STOP_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()
