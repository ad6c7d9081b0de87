"""Runs a piece of work of a command on the tree of a ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from headrace.tools.shared.commands import CommandError

if TYPE_CHECKING:
    from headrace.coordination.client.client_security import ClientSecurity
    from headrace.coordination.interface import Coordination

T = TypeVar("T")


def run_in_zookeeper(
    connect: str, timeout_ms: int, security: ClientSecurity, work: Callable[[Coordination], Awaitable[T]]
) -> T:
    """Connects, and returns what the work returns.

    :raises CommandError: if ZooKeeper cannot be reached, or rejects a change.
    """
    from headrace.coordination.client.zookeeper_client import ZookeeperCoordination
    from headrace.coordination.interface import CoordinationError

    async def run() -> T:
        tree = await ZookeeperCoordination.connect(
            connect, session_timeout_ms=timeout_ms, connection_timeout_ms=timeout_ms, security=security
        )
        try:
            return await work(tree)
        finally:
            await tree.close()

    try:
        return asyncio.run(run())
    except CoordinationError as error:
        raise CommandError(f"ZooKeeper at {connect}: {error}") from None
