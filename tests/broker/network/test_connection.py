"""A connection on a real socket pair, with a queue and handlers that the test plays; and some on a live broker."""

import asyncio
import logging
import os
import socket
from contextlib import ExitStack
from struct import pack

import pytest

from headrace import Broker
from headrace.broker.metrics.counters import RequestMetrics
from headrace.broker.network.connection import Connection
from headrace.broker.network.plain_channel import PlainChannel
from headrace.broker.quotas.client_quotas import ClientQuotas
from headrace.broker.quotas.rates import Windows
from headrace.broker.quotas.throttling import Throttling
from headrace.peer_log import PeerLog
from headrace.protocol.api import Api
from headrace.protocol.batch_building import build_batch
from headrace.protocol.record_body import Record
from headrace.runtime.clock import SystemClock
from headrace.runtime.timer import Timer
from headrace.testing import ManualClock
from headrace.testing.raw_client import RawClient, decode_response, encode_request


class Requests:
    """Stands for the request queue: keeps what comes, has room or not."""

    def __init__(self):
        self.waiting = []
        self.has_room = True
        self.on_room = []

    def put(self, request, on_room):
        if self.has_room:
            self.waiting.append(request)
        else:
            self.on_room.append(on_room)
        return self.has_room

    def make_room(self):
        self.has_room = True
        waiting, self.on_room = self.on_room, []
        for callback in waiting:
            callback()


class Wire:
    """Both ends of a connection on the running loop."""

    def __init__(self, *, send_buffer_bytes=None, max_request_bytes=1_000_000):
        ours, self.client = tcp_pair()
        if send_buffer_bytes is not None:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        for sock in (ours, self.client):
            sock.setblocking(False)
        self.loop = asyncio.get_running_loop()
        self.requests = Requests()
        self.metrics = RequestMetrics()
        self.closed = []
        self.connection = Connection(
            PlainChannel(ours, self.loop),
            "127.0.0.1:1",
            listener_name="PLAINTEXT",
            queue=self.requests,
            metrics=self.metrics,
            throttling=Throttling(ClientQuotas(), SystemClock(), Timer(SystemClock()), Windows()),
            max_request_bytes=max_request_bytes,
            on_close=self.closed.append,
            peer_log=PeerLog(logging.getLogger("headrace.broker.network"), ManualClock().monotonic_ms),
        )
        self.connection.start()

    async def send(self, data):
        await self.loop.sock_sendall(self.client, data)

    async def receive(self, size_bytes):
        data = b""
        while len(data) < size_bytes:
            part = await self.loop.sock_recv(self.client, size_bytes - len(data))
            if not part:
                raise EOFError
            data += part
        return data

    async def receive_frame(self):
        return await self.receive(int.from_bytes(await self.receive(4), "big"))

    async def next_request(self):
        await until(lambda: self.requests.waiting)
        return self.requests.waiting.pop(0)

    async def is_closed(self):
        await until(lambda: self.connection.is_closed)
        return self.closed == [self.connection]

    def close(self):
        self.connection.close()
        self.client.close()


def tcp_pair():
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        ours, _ = server.accept()
    return ours, client


async def until(condition, turns=100_000):
    for _ in range(turns):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("did not happen")


async def a_few_turns():
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
async def wire():
    wire = Wire()
    yield wire
    wire.close()


def init_producer_id(correlation_id):
    """A request with a small body; any would do."""
    return framed(encode_request(Api.INIT_PRODUCER_ID, 0, correlation_id, "c", transactional_id=None,
                                 transaction_timeout=0))  # fmt: skip


def framed(request):
    return pack(">i", len(request)) + request


def reply(producer_id):
    return {"producer_id": producer_id, "producer_epoch": 0}


def answer_of(frame):
    return int.from_bytes(frame[:4], "big"), decode_response(Api.INIT_PRODUCER_ID, 0, frame).producer_id


# -- requests in


async def test_pipelined_requests_are_under_way_one_at_a_time_and_answered_in_order(wire):
    await wire.send(b"".join(init_producer_id(number) for number in range(5)))
    for number in range(5):
        request = await wire.next_request()
        await a_few_turns()
        assert not wire.requests.waiting, "the next one is not taken before this one is answered"
        assert request.correlation_id == number
        wire.connection.answer(request, reply(number * 10))
    for number in range(5):
        assert answer_of(await wire.receive_frame()) == (number, number * 10)


async def test_an_answer_that_was_held_for_the_next_one_leaves_when_that_has_to_wait(wire):
    await wire.send(init_producer_id(1) + init_producer_id(2))
    wire.connection.answer(await wire.next_request(), reply(10))
    second = await wire.next_request()
    wire.connection.send_held()
    assert answer_of(await wire.receive_frame()) == (1, 10)
    wire.connection.answer(second, reply(20))
    assert answer_of(await wire.receive_frame()) == (2, 20)


async def test_a_held_answer_leaves_before_a_file(wire, tmp_path):
    (tmp_path / "log").write_bytes(b"x" * 100)
    await wire.send(init_producer_id(1) + framed(encode_request(Api.FETCH, 4, 2, None, **A_FETCH)))
    wire.connection.answer(await wire.next_request(), reply(10))
    with (tmp_path / "log").open("rb") as file:
        wire.connection.answer(await wire.next_request(), fetched({"records": Region(file, 0, 100)}))
    assert answer_of(await wire.receive_frame()) == (1, 10)
    (topic,) = decode_response(Api.FETCH, 4, await wire.receive_frame()).responses
    assert topic.partitions[0].records == b"x" * 100


async def test_a_request_in_pieces_of_one_byte(wire):
    for byte in init_producer_id(3):
        await wire.send(bytes([byte]))
        await a_few_turns()
    request = await wire.next_request()
    request.read_body()
    assert request.correlation_id == 3
    assert request.client_id == "c"


async def test_a_request_that_is_larger_than_the_first_buffer(wire):
    big = encode_request(
        Api.PRODUCE, 9, 1, None, transactional_id=None, acks=1, timeout=1,
        topic_data=[{"name": "t", "partition_data": [{"index": 0, "records": bytes(range(256)) * 2000}]}],
    )  # fmt: skip
    await wire.send(framed(big) + init_producer_id(2))
    request = await wire.next_request()
    request.read_body()
    assert request.body.topic_data[0].partition_data[0].records == bytes(range(256)) * 2000
    wire.connection.answer(request, {"responses": []})
    await wire.receive_frame()
    assert (await wire.next_request()).correlation_id == 2


async def test_no_answer_is_sent_where_the_protocol_wants_silence(wire):
    await wire.send(init_producer_id(1) + init_producer_id(2))
    wire.connection.answer(await wire.next_request(), None)
    wire.connection.answer(await wire.next_request(), reply(5))
    assert answer_of(await wire.receive_frame()) == (2, 5)


async def test_a_connection_whose_request_finds_no_room_is_not_read_until_there_is(wire):
    wire.requests.has_room = False
    await wire.send(init_producer_id(1) + init_producer_id(2))
    await until(lambda: wire.requests.on_room)
    assert len(wire.requests.on_room) == 1
    wire.requests.make_room()
    for number in (1, 2):
        request = await wire.next_request()
        assert request.correlation_id == number
        wire.connection.answer(request, reply(0))
    for _ in range(2):
        await wire.receive_frame()


async def test_an_answer_is_not_held_for_a_request_that_finds_no_room(wire):
    await wire.send(init_producer_id(1) + init_producer_id(2))
    request = await wire.next_request()
    wire.requests.has_room = False
    wire.connection.answer(request, reply(10))
    assert answer_of(await wire.receive_frame()) == (1, 10)


async def test_a_client_that_sends_and_never_reads_is_stopped_by_its_own_socket(wire):
    """The requests stay in the kernel: here there is never more than one, and one buffer."""
    request, sent_bytes = init_producer_id(1), 0
    try:
        while sent_bytes < 64_000_000:
            sent_bytes += wire.client.send(request * 1000)
            await a_few_turns()
        pytest.fail("the client could send all it wanted")
    except BlockingIOError:
        pass
    assert len(wire.requests.waiting) == 1
    assert wire.connection.frames.capacity_bytes <= 64 * 1024


async def test_a_client_that_does_not_read_its_answer_has_no_second_request_under_way():
    wire = Wire(send_buffer_bytes=65536)
    big = {"records": b"r" * 8_000_000}
    await wire.send(framed(encode_request(Api.FETCH, 4, 1, None, **A_FETCH)) + init_producer_id(2))
    wire.connection.answer(await wire.next_request(), fetched(big))
    await a_few_turns()
    assert not wire.requests.waiting
    frame = await wire.receive_frame()
    (partition,) = decode_response(Api.FETCH, 4, frame).responses[0].partitions
    assert partition.records == b"r" * 8_000_000
    assert (await wire.next_request()).correlation_id == 2
    wire.close()


async def test_a_slow_reader_is_not_idle():
    wire = Wire(send_buffer_bytes=65536)
    await wire.send(framed(encode_request(Api.FETCH, 4, 1, None, **A_FETCH)))
    wire.connection.answer(await wire.next_request(), fetched({"records": b"r" * 8_000_000}))
    before_ns = wire.connection.last_active_ns
    await wire.receive(4_000_000)
    await until(lambda: wire.connection.last_active_ns > before_ns)
    assert not wire.connection.is_closed
    wire.close()


# -- files out

A_FETCH = {
    "replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": 1, "isolation_level": 0, "topics": [],
}  # fmt: skip


def fetched(*partitions):
    return {
        "responses": [
            {
                "topic": "t",
                "partitions": [
                    {
                        "partition_index": 0, "high_watermark": 0, "last_stable_offset": 0,
                        "aborted_transactions": None, **each,
                    }
                    for each in partitions
                ],
            }
        ]
    }  # fmt: skip


class Region:
    def __init__(self, file, position, size_bytes):
        self._file, self.position, self._size_bytes = file, position, size_bytes

    def fileno(self):
        return self._file.fileno()

    def read(self):
        return os.pread(self.fileno(), self._size_bytes, self.position)

    def __len__(self):
        return self._size_bytes


@pytest.mark.parametrize("send_buffer_bytes", [None, 2048])
async def test_files_go_out_between_the_bytes_where_they_belong(tmp_path, send_buffer_bytes):
    content = bytes(number * 7 % 251 for number in range(1_000_000))
    (tmp_path / "log").write_bytes(content)
    wire = Wire(send_buffer_bytes=send_buffer_bytes)
    with (tmp_path / "log").open("rb") as file:
        await wire.send(framed(encode_request(Api.FETCH, 4, 1, None, **A_FETCH)))
        parts = [(0, 700_000), (5, 1), (10, 0), (300_000, 700_000)]
        message = fetched(*({"records": Region(file, at, size_bytes)} for at, size_bytes in parts), {"records": b"zz"})
        wire.connection.answer(await wire.next_request(), message)
        frame = await wire.receive_frame()
    (topic,) = decode_response(Api.FETCH, 4, frame).responses
    expected = [content[at : at + size_bytes] for at, size_bytes in parts] + [b"zz"]
    assert [each.records for each in topic.partitions] == expected
    await wire.send(init_producer_id(2))
    assert (await wire.next_request()).correlation_id == 2
    wire.close()


async def test_a_file_that_has_become_shorter_ends_the_connection(wire, tmp_path):
    (tmp_path / "log").write_bytes(b"x" * 100)
    with (tmp_path / "log").open("rb") as file:
        await wire.send(framed(encode_request(Api.FETCH, 4, 1, None, **A_FETCH)))
        wire.connection.answer(await wire.next_request(), fetched({"records": Region(file, 0, 200)}))
    assert await wire.is_closed()


# -- ends


async def test_a_half_closed_socket_still_gets_its_answers(wire):
    await wire.send(init_producer_id(1) + init_producer_id(2))
    wire.client.shutdown(socket.SHUT_WR)
    for _ in range(2):
        wire.connection.answer(await wire.next_request(), reply(0))
    for number in (1, 2):
        assert answer_of(await wire.receive_frame()) == (number, 0)
    assert await wire.is_closed()


async def test_a_client_that_leaves_between_requests(wire, caplog):
    with caplog.at_level(logging.INFO, "headrace.broker"):
        wire.client.close()
        assert await wire.is_closed()
    assert not caplog.records, "that is how clients leave"


async def test_a_client_that_leaves_in_the_middle_of_a_request(wire):
    await wire.send(init_producer_id(1)[:-3])
    wire.client.close()
    assert await wire.is_closed()
    assert not wire.requests.waiting


async def test_a_client_that_leaves_before_its_answer(wire):
    await wire.send(init_producer_id(1))
    request = await wire.next_request()
    wire.client.close()
    await a_few_turns()
    wire.connection.answer(request, reply(1))
    assert await wire.is_closed()


async def test_a_client_that_leaves_in_the_middle_of_a_large_answer():
    wire = Wire(send_buffer_bytes=65536)
    await wire.send(framed(encode_request(Api.FETCH, 4, 1, None, **A_FETCH)))
    wire.connection.answer(await wire.next_request(), fetched({"records": b"r" * 8_000_000}))
    await wire.receive(1000)
    wire.client.close()
    assert await wire.is_closed()


async def test_an_answer_for_a_connection_that_was_closed_goes_nowhere(wire):
    await wire.send(init_producer_id(1))
    request = await wire.next_request()
    wire.connection.close()
    wire.connection.answer(request, reply(1))
    wire.connection.close()
    assert wire.closed == [wire.connection]


@pytest.mark.parametrize("length", [-1, -(2**31), 1_000_001, 2**31 - 1])
async def test_a_frame_length_that_cannot_be_right_closes_with_one_line(wire, caplog, length):
    with caplog.at_level(logging.INFO, "headrace.broker"):
        await wire.send(pack(">i", length))
        assert await wire.is_closed()
    (record,) = caplog.records
    assert record.getMessage().startswith(f"closing the connection of 127.0.0.1:1: a frame of {length} bytes")


async def test_a_request_that_cannot_be_read_closes_with_one_line_after_the_answers_before_it(wire, caplog):
    await wire.send(init_producer_id(1) + framed(b"\x7f\xff garbage"))
    request = await wire.next_request()
    assert not wire.connection.is_closed
    with caplog.at_level(logging.INFO, "headrace.broker"):
        wire.connection.answer(request, reply(1))
        assert answer_of(await wire.receive_frame()) == (1, 1)
        assert await wire.is_closed()
    assert len(caplog.records) == 1


async def test_what_was_answered_is_counted(wire):
    await wire.send(init_producer_id(1))
    wire.connection.answer(await wire.next_request(), reply(1))
    await wire.receive_frame()
    assert wire.metrics.by_api[Api.INIT_PRODUCER_ID].requests == 1


# -- on a live broker


def batch(value, count=1):
    return build_batch([Record(number, 1_700_000_000_000, b"k", value, ()) for number in range(count)])


def produce(client, records, topic="t", acks=1):
    return client.ask(
        Api.PRODUCE, 9, transactional_id=None, acks=acks, timeout=5000,
        topic_data=[{"name": topic, "partition_data": [{"index": 0, "records": records}]}],
    ).responses[0].partition_responses[0]  # fmt: skip


def fetch_fields(max_bytes, offset=0):
    return {
        "replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": max_bytes, "isolation_level": 0,
        "topics": [
            {"topic": "t", "partitions": [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": max_bytes}]}
        ],
    }  # fmt: skip


def metadata(client, *names):
    return client.ask(
        Api.METADATA, 12, topics=[{"topic_id": None, "name": name} for name in names],
        allow_auto_topic_creation=True, include_topic_authorized_operations=False,
    )  # fmt: skip


def test_slow_readers_get_exactly_the_bytes_of_the_log_and_disturb_nobody(tmp_path):
    with Broker(data=tmp_path) as broker, RawClient(broker.bootstrap_servers) as quick, ExitStack() as stack:
        metadata(quick, "t")
        for number in range(8):
            assert produce(quick, batch(bytes([number]) * 600_000)).base_offset == number
        stored = (tmp_path / "t-0" / "00000000000000000000.log").read_bytes()
        slow = [stack.enter_context(RawClient(broker.bootstrap_servers)) for _ in range(3)]
        for client in slow:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            client.send(Api.FETCH, 4, **fetch_fields(50_000_000))
        sizes_bytes = [int.from_bytes(client.read_bytes(4), "big") for client in slow]
        assert produce(quick, batch(b"meanwhile")).base_offset == 8
        for client, size_bytes in zip(slow, sizes_bytes, strict=True):
            (partition,) = decode_response(Api.FETCH, 4, client.read_bytes(size_bytes)).responses[0].partitions
            assert partition.records == stored


def test_many_connections_through_a_queue_for_one():
    with Broker(config={"queued.max.requests": 1}) as broker, ExitStack() as stack:
        clients = [stack.enter_context(RawClient(broker.bootstrap_servers)) for _ in range(30)]
        for client in clients:
            for _ in range(10):
                client.send(Api.DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=False)
        for client in clients:
            for _ in range(10):
                assert client.receive().error_code == 0  # each checks its correlation id


async def test_a_connection_that_was_closed_sends_no_held_answers(wire, monkeypatch):
    """Another thread may be closing a channel with TLS at this time."""
    await wire.send(init_producer_id(1) + init_producer_id(2))
    wire.connection.answer(await wire.next_request(), reply(10))
    await wire.next_request()
    wire.connection.close()
    monkeypatch.setattr(type(wire.connection._channel), "send", lambda *_: pytest.fail("the channel was used"))
    wire.connection.send_held()
    assert wire.connection.is_closed
