"""Gives tests a console on a real broker: as an ASGI application, without a socket."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from headrace import Broker

sys.path.insert(0, str(Path(__file__).parent))

from console_harness import ConsoleHarness


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """One broker for the tests of a module."""
    with Broker() as broker:
        yield broker


@pytest.fixture
async def open_console(broker: Broker, tmp_path: Path) -> AsyncIterator[Callable[..., ConsoleHarness]]:
    """Opens consoles: ``open_console(is_read_only=True)``. The keywords are those of ``Settings``."""
    async with AsyncExitStack() as opened:

        async def open_(**settings: object) -> ConsoleHarness:
            settings.setdefault("clients", {"bootstrap.servers": broker.bootstrap_servers})
            settings.setdefault("data", tmp_path / "console")
            return await opened.enter_async_context(ConsoleHarness(settings))

        yield open_


@pytest.fixture
async def console(open_console) -> ConsoleHarness:
    return await open_console()
