"""The stream of a live page: it sends the part that changes, when it changes, and ends with its session."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from headrace import Admin
from headrace.console.page_answers import PageAnswers
from headrace.console.pages import topics
from headrace.console.problems import TooMany
from headrace.console.protection.sessions import MOST_STREAMS

_TIMEOUT_S = 20


@asynccontextmanager
async def stream(console, path_query: bytes = b"q=live-"):
    """The events of the page Topics, read again at once."""
    from starlette.requests import Request

    await console.page("/topics")
    cookie = "; ".join(f"{name}={value}" for name, value in console.browser.cookies.items())
    scope = {
        "type": "http", "method": "GET", "path": "/topics", "query_string": path_query, "path_params": {},
        "headers": [(b"accept", b"text/event-stream"), (b"cookie", cookie.encode()), (b"host", b"127.0.0.1:8080")],
        "server": ("127.0.0.1", 8080), "scheme": "http",
    }  # fmt: skip
    answers = PageAnswers(console.services, replace(topics.PAGE, live_seconds=0.001))
    response = await answers.html(Request(scope))
    events = response.body_iterator
    try:
        yield events
    finally:
        await events.aclose()


async def next_event(events) -> tuple[str, str]:
    async with asyncio.timeout(_TIMEOUT_S):
        async for chunk in events:
            lines = dict(line.split(": ", 1) for line in chunk.decode().splitlines() if line)
            if "event" in lines:
                return lines["event"], json.loads(lines["data"])
    raise AssertionError("the stream has ended")


async def test_a_change_is_sent_once(console, broker):
    async with stream(console) as events:
        assert "live-topic" not in (await next_event(events))[1]
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("live-topic")
        kind, html = await next_event(events)
        assert (kind, "live-topic" in html, "<html" in html) == ("live", True, False)


async def test_a_stream_ends_with_its_session(console):
    async with stream(console) as events:
        await next_event(events)
        session = console.services.sessions.find(console.browser.cookies["headrace_console_8080"])
        assert session.streams == 1
        await console.services.sessions.end(session)
        async with asyncio.timeout(_TIMEOUT_S):
            async for _ in events:
                pass
        assert session.streams == 0


async def test_a_session_has_few_streams(console):
    async with stream(console) as events:
        await next_event(events)
        session = console.services.sessions.find(console.browser.cookies["headrace_console_8080"])
        session.streams = MOST_STREAMS
        with pytest.raises(TooMany):
            await stream(console).__aenter__()
        session.streams = 1


async def test_trouble_of_the_cluster_is_an_event(console, monkeypatch):
    from headrace.client.errors import BrokerUnreachable

    async def fail():
        raise BrokerUnreachable("there is no broker")

    async with stream(console) as events:
        await next_event(events)
        monkeypatch.setattr(console.services.reader, "topics", fail)
        assert await next_event(events) == ("problem", "there is no broker")
