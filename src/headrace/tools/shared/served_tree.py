"""Serves the znode tree of a folder on ZooKeeper's protocol, for ``headrace zookeeper`` and ``start --brokers``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headrace import __version__
from headrace.coordination.interface import CoordinationError
from headrace.coordination.server.logins import Logins
from headrace.coordination.server.service import DEFAULT_TICK_TIME_MS, TreeService
from headrace.coordination.server.tree_server import TreeServer
from headrace.coordination.tree.host import TreeHost
from headrace.coordination.tree.store import TreeStore, session_secret
from headrace.runtime.clock import SystemClock
from headrace.runtime.loop_timer import LoopTimer
from headrace.tools.shared.tree_settings import Address

if TYPE_CHECKING:
    from ssl import SSLContext


class TreeNotServed(Exception):
    """The tree cannot be served; the message is one line for the user."""


class ServedTree(NamedTuple):
    #: HOST:PORT of each port, the one with TLS last.
    addresses: tuple[str, ...]
    service: TreeService


@asynccontextmanager
async def served_tree(
    folder: Path,
    address: Address | None,
    *,
    secure_address: Address | None = None,
    tls: SSLContext | None = None,
    tick_time_ms: int = DEFAULT_TICK_TIME_MS,
    keep_sessions: bool = True,
    logins: Logins | None = None,
    max_connections_per_address: int = 0,
    four_letter_words: frozenset[bytes] = frozenset(),
) -> AsyncIterator[ServedTree]:
    """
    :param address: where to listen without TLS; None: nowhere.
    :param secure_address: where to listen with TLS.
    :param keep_sessions: True: earlier clients may resume their sessions. False: all earlier sessions are ended.
    :param logins: how clients log in; None: without a super user.
    :param max_connections_per_address: 0 for no limit.
    :param four_letter_words: the four-letter words that are answered, also before a login.
    :raises TreeNotServed: if the folder cannot be opened, or the address is in use.
    """
    clock = SystemClock()
    tree_host, secret = _open(folder, clock)
    if not keep_sessions:
        for session_id in list(tree_host.tree.sessions):
            tree_host.close_session(session_id)
    loop_timer = LoopTimer(asyncio.get_running_loop(), clock)
    try:
        service = TreeService.of(
            tree_host,
            clock,
            loop_timer.timer,
            secret=secret,
            tick_time_ms=tick_time_ms,
            version=__version__,
            logins=logins,
            max_connections_per_address=max_connections_per_address,
            four_letter_words=four_letter_words,
        )
        server = TreeServer(service)
        try:
            bound = [await _listen(server, *address, None)] if address is not None else []
            if secure_address is not None:
                bound.append(await _listen(server, *secure_address, tls))
            yield ServedTree(tuple(bound), service)
        finally:
            await server.stop()
    finally:
        loop_timer.stop()
        tree_host.close()


async def _listen(server: TreeServer, host: str, port: int, tls: SSLContext | None) -> str:
    try:
        bound_host, bound_port = await server.start(host, port, tls)
    except OSError as error:
        reason = (error.strerror or str(error)).rpartition(": ")[2]
        raise TreeNotServed(f"cannot listen on {host}:{port}: {reason}") from None
    return f"[{bound_host}]:{bound_port}" if ":" in bound_host else f"{bound_host}:{bound_port}"


def _open(folder: Path, clock: SystemClock) -> tuple[TreeHost, bytes]:
    try:
        store = TreeStore.open(folder)
    except BlockingIOError:
        raise TreeNotServed(f"{folder} is in use by another process") from None
    except (OSError, CoordinationError) as error:
        raise TreeNotServed(f"cannot open the znode tree in {folder}: {error}") from None
    try:
        return TreeHost(clock, store=store), session_secret(folder)
    except OSError as error:
        store.close()
        raise TreeNotServed(f"cannot open the znode tree in {folder}: {error}") from None
