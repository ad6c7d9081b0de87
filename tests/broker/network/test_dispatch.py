"""From a request to its handler and back, with handlers and a connection made for it."""

import asyncio
import logging
from types import SimpleNamespace

import pytest

from headrace.broker.network import dispatch
from headrace.broker.network.dispatch import Dispatcher
from headrace.broker.network.handler_binding import load_handler, served_apis
from headrace.broker.network.prompt_future import PromptFuture
from headrace.broker.network.request import Request
from headrace.protocol.api import Api
from headrace.protocol.wire.server_codec import read_request_header
from headrace.testing.raw_client import encode_request


class FakeConnection:
    peer = "127.0.0.1:1"

    def __init__(self, refuses_replies=False):
        self.is_closed = False
        self.answers = []
        self.reasons = []
        self._refuses_replies = refuses_replies

    def answer(self, request, reply):
        if self._refuses_replies:
            raise KeyError("a field that the reply lacks")
        if not self.is_closed:
            self.answers.append(reply)

    def send_held(self):
        pass

    def abort(self, reason):
        if not self.is_closed:
            self.reasons.append(reason)
            self.is_closed = True


def request(connection, api=Api.METADATA, version=0, frame=None):
    frame = memoryview(frame or encode_request(api, version, 7, None, topics=[]))
    return Request(read_request_header(frame), frame, connection)


async def never_called(request):
    raise AssertionError(f"{request} reached its handler")


def new_dispatcher(loop):
    dispatcher = Dispatcher(loop, None)
    dispatcher.start(SimpleNamespace(served_apis=served_apis(in_cluster=False)))
    return dispatcher


@pytest.fixture
def dispatcher(monkeypatch):
    """For requests that reach no handler: it needs no loop."""
    handled_by(monkeypatch, never_called)
    return new_dispatcher(None)


def handled_by(monkeypatch, handler):
    monkeypatch.setattr(dispatch, "bound_handler", lambda api, services: handler)


async def dispatched(monkeypatch, handler, connection=None):
    """The connection after a request was handled, waits included."""
    handled_by(monkeypatch, handler)
    connection = connection or FakeConnection()
    dispatcher = new_dispatcher(asyncio.get_running_loop())
    dispatcher.handle(request(connection))
    await finished(dispatcher)
    return connection


async def finished(dispatcher):
    while dispatcher._tasks:
        await asyncio.wait(dispatcher._tasks)


def test_each_file_is_a_served_api_and_has_a_handler():
    apis = served_apis(in_cluster=True)
    assert {Api.PRODUCE, Api.FETCH, Api.METADATA, Api.API_VERSIONS} <= set(apis)
    assert list(apis) == sorted(apis)
    for api in apis:
        assert asyncio.iscoroutinefunction(load_handler(api))


async def test_a_handler_that_does_not_wait_answers_at_once(monkeypatch):
    async def handler(request):
        return {"n": 1}

    handled_by(monkeypatch, handler)
    connection = FakeConnection()
    new_dispatcher(asyncio.get_running_loop()).handle(request(connection))
    assert connection.answers == [{"n": 1}]


async def test_a_handler_that_waits_answers_later(monkeypatch):
    event = asyncio.Event()

    async def handler(request):
        for _ in range(3):
            await asyncio.sleep(0)
        await event.wait()
        return {"n": 2}

    handled_by(monkeypatch, handler)
    connection = FakeConnection()
    dispatcher = new_dispatcher(asyncio.get_running_loop())
    dispatcher.handle(request(connection))
    assert not connection.answers
    event.set()
    await finished(dispatcher)
    assert connection.answers == [{"n": 2}]


async def test_a_prompt_future_is_taken_up_on_the_stack_of_who_sets_it(monkeypatch):
    loop = asyncio.get_running_loop()
    futures = [loop.create_future(), PromptFuture(loop=loop)]

    async def handler(request):
        return {"n": [await future for future in futures]}

    handled_by(monkeypatch, handler)
    connection = FakeConnection()
    produce = encode_request(Api.PRODUCE, 7, 7, None, transactional_id=None, acks=-1, timeout=1, topic_data=[])
    new_dispatcher(loop).handle(request(connection, Api.PRODUCE, 7, produce))
    futures[0].set_result(1)
    await asyncio.sleep(0)
    assert not connection.answers
    futures[1].set_result(2)
    assert connection.answers == [{"n": [1, 2]}]


async def test_a_prompt_future_is_one_for_a_task_too():
    loop = asyncio.get_running_loop()
    future = PromptFuture(loop=loop)
    loop.call_soon(future.set_result, 3)
    assert await future == 3


async def test_an_error_that_a_handler_awaits_reaches_it(monkeypatch):
    async def handler(request):
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_exception, ValueError("late"))
        try:
            await future
        except ValueError as error:
            await asyncio.sleep(0)
            return {"caught": str(error)}

    connection = await dispatched(monkeypatch, handler)
    assert connection.answers == [{"caught": "late"}]


@pytest.mark.parametrize("waits", [False, True])
async def test_a_handler_that_raises_costs_its_client_the_connection_and_nobody_else_anything(
    monkeypatch, caplog, waits
):
    async def handler(request):
        if waits:
            await asyncio.sleep(0)
        raise ZeroDivisionError

    connection = await dispatched(monkeypatch, handler)
    assert connection.is_closed
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert "Metadata v0 of 127.0.0.1:1 failed" in record.getMessage()


@pytest.mark.parametrize("waits", [False, True])
async def test_a_reply_that_cannot_be_encoded_is_a_failed_handler(monkeypatch, caplog, waits):
    """It may not reach the queue, whose turn would end with requests left in it."""

    async def handler(request):
        if waits:
            await asyncio.sleep(0)
        return {}

    connection = await dispatched(monkeypatch, handler, FakeConnection(refuses_replies=True))
    assert connection.is_closed
    assert "Metadata v0 of 127.0.0.1:1 failed" in caplog.text


def test_a_request_of_a_closed_connection_is_dropped(dispatcher):
    connection = FakeConnection()
    connection.is_closed = True
    dispatcher.handle(request(connection))
    assert not connection.answers


def test_an_api_that_is_known_but_not_served(dispatcher):
    connection = FakeConnection()
    dispatcher.handle(request(connection, frame=b"\0\x04\0\0\0\0\0\x07\xff\xff"))
    assert connection.reasons == ["LeaderAndIsr is not served"]


@pytest.mark.parametrize("version", [99, -1])
def test_a_version_that_is_not_spoken(dispatcher, version):
    connection = FakeConnection()
    frame = b"\0\x03" + version.to_bytes(2, "big", signed=True) + b"\0\0\0\x07\xff\xff"
    dispatcher.handle(request(connection, frame=frame))
    assert connection.reasons == [f"Metadata has no version {version}"]


def test_a_body_that_cannot_be_read(dispatcher):
    connection = FakeConnection()
    dispatcher.handle(request(connection, frame=b"\0\x03\0\0\0\0\0\x07\xff\xff\x7f\xff\xff\xff"))
    (reason,) = connection.reasons
    assert "the body of Metadata v0 cannot be read" in reason


async def test_stopping_cancels_whoever_waits(monkeypatch):
    was_cancelled = []

    async def handler(request):
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            was_cancelled.append(True)
            raise

    handled_by(monkeypatch, handler)
    dispatcher = new_dispatcher(asyncio.get_running_loop())
    dispatcher.handle(request(FakeConnection()))
    await asyncio.sleep(0)
    dispatcher.stop()
    await finished(dispatcher)
    assert was_cancelled


def test_a_handler_that_cannot_be_loaded_closes_the_connection(monkeypatch, caplog):
    def fail(api, services):
        raise ImportError("no such module")

    monkeypatch.setattr(dispatch, "bound_handler", fail)
    connection = FakeConnection()
    new_dispatcher(None).handle(request(connection))
    assert connection.is_closed
    assert "Metadata v0 of 127.0.0.1:1 failed" in caplog.text
