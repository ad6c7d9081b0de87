"""A connection pipelines, matches answers to requests, and fails what it cannot answer."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from struct import pack

import pytest

from headrace import Broker
from headrace.client.connection import Connection
from headrace.client.errors import BrokerUnreachable, KafkaTimeout, NotSendable, UnsupportedByBroker
from headrace.protocol.api import Api, versions_of
from headrace.protocol.kio import ErrorCode, load_response_schema
from headrace.protocol.wire.client_codec import body_at
from headrace.protocol.wire.encoder import encoder_of

_VERSIONS = [{"api_key": int(api), "min_version": 0, "max_version": 3} for api in (Api.METADATA, Api.API_VERSIONS)]


@asynccontextmanager
async def connected(broker: Broker, **options: object) -> AsyncIterator[Connection]:
    connection = await Connection.open(broker.host, broker.port, client_id="c", **options)  # type: ignore[arg-type]
    yield connection
    await connection.close()


def metadata_of(*topics: str) -> dict[str, object]:
    return {
        "topics": [{"name": topic, "topic_id": None} for topic in topics],
        "allow_auto_topic_creation": True,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }


def api_versions_frame(request: bytes, version: int, code: ErrorCode = ErrorCode.none) -> bytes:
    out = bytearray(request[4:8])
    body = {"error_code": code.value, "api_keys": _VERSIONS}
    encoder_of(load_response_schema(Api.API_VERSIONS, version))(out, body, [])
    return pack(">i", len(out)) + out


@asynccontextmanager
async def scripted(*answers) -> AsyncIterator[tuple[str, int]]:
    """A broker that answers the n-th request by the n-th function; after the last it is silent, at None it hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            for answer in answers:
                request = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                if answer is None:
                    return
                writer.write(answer(request))
            await reader.read()
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[:2]


async def test_answers_come_to_those_who_asked() -> None:
    async with Broker() as broker, connected(broker) as connection:
        version = connection.version_of(Api.METADATA)
        futures = [connection.send(Api.METADATA, version, metadata_of(f"t{i}")) for i in range(20)]
        assert connection.in_flight == 20
        answers = await asyncio.gather(*futures)
        assert [answer.topics[0].name for answer in answers] == [f"t{i}" for i in range(20)]
        assert connection.in_flight == 0


async def test_the_highest_version_that_both_speak() -> None:
    async with Broker() as broker, connected(broker) as connection:
        assert connection.version_of(Api.METADATA) in versions_of(Api.METADATA)
        assert connection.version_of(Api.METADATA, most=9) == 9
        assert connection.supports(Api.METADATA, 9)
        with pytest.raises(UnsupportedByBroker, match="Metadata is needed in"):
            connection.version_of(Api.METADATA, most=-1)


async def test_an_older_broker_is_asked_again_in_version_0() -> None:
    async with scripted(
        lambda request: api_versions_frame(request, 0, ErrorCode.unsupported_version),
        lambda request: api_versions_frame(request, 0),
    ) as (host, port):
        connection = await Connection.open(host, port)
        assert connection.version_of(Api.METADATA) == 3
        with pytest.raises(UnsupportedByBroker, match="does not support it"):
            connection.version_of(Api.FETCH)
        await connection.close()


async def test_a_raw_answer_stays_as_it_is_when_more_comes() -> None:
    async with Broker(config={"num.partitions": 200}) as broker, connected(broker) as connection:
        fields = metadata_of("t")
        frame = await connection.ask_raw(Api.METADATA, version=9, **fields)
        before = bytes(frame)
        assert len(before) > 4096
        assert body_at(Api.METADATA, 9, frame) == 5
        for _ in range(3):
            await connection.ask(Api.METADATA, version=9, **fields)
        assert bytes(frame) == before


async def test_a_broker_that_hangs_up_fails_all_that_wait() -> None:
    async with scripted(lambda request: api_versions_frame(request, 3), None) as (host, port):
        connection = await Connection.open(host, port)
        futures = [connection.send(Api.METADATA, 1, {"topics": []}) for _ in range(3)]
        results = await asyncio.gather(*futures, return_exceptions=True)
        assert all(isinstance(result, BrokerUnreachable) for result in results)
        assert "Metadata" in str(results[0])
        assert connection.is_closed
        with pytest.raises(BrokerUnreachable, match="closed"):
            await connection.ask(Api.METADATA, **metadata_of())


async def test_an_answer_that_does_not_come_closes_the_connection() -> None:
    async with scripted(lambda request: api_versions_frame(request, 3)) as (host, port):
        connection = await Connection.open(host, port)
        behind = connection.send(Api.METADATA, 1, {"topics": []})
        with pytest.raises(KafkaTimeout, match="did not answer Metadata within 1 ms"):
            await connection.ask(Api.METADATA, **metadata_of(), timeout_ms=1)
        with pytest.raises(BrokerUnreachable):
            await behind
        assert connection.is_closed


async def test_each_request_has_its_own_time() -> None:
    async with scripted(lambda request: api_versions_frame(request, 3)) as (host, port):
        connection = await Connection.open(host, port, timeout_ms=1000, connect_timeout_ms=20)
        sent_at = asyncio.get_running_loop().time()
        with pytest.raises(KafkaTimeout, match="within 60 ms"):  # and not when the time of the first would be over
            await connection.ask(Api.METADATA, **metadata_of(), timeout_ms=60)
        assert asyncio.get_running_loop().time() - sent_at > 0.058


async def test_one_who_no_longer_waits_disturbs_nobody() -> None:
    async with Broker() as broker, connected(broker) as connection:
        given_up = asyncio.create_task(connection.ask(Api.METADATA, **metadata_of()))
        await asyncio.sleep(0)
        given_up.cancel()
        assert (await connection.ask(Api.METADATA, **metadata_of())).brokers


@pytest.mark.parametrize("garbage", [b"\x00\x00\x00\x02ab", b"\xff\xff\xff\xff", pack(">ii", 4, 999)])
async def test_bytes_that_are_no_answer_end_the_connection(garbage: bytes) -> None:
    async with scripted(lambda request: api_versions_frame(request, 3), lambda request: garbage) as (host, port):
        connection = await Connection.open(host, port)
        with pytest.raises(BrokerUnreachable):
            await connection.ask(Api.METADATA, **metadata_of())


async def test_nobody_is_there() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(BrokerUnreachable, match=f"127.0.0.1:{port}"):
        await Connection.open("127.0.0.1", port)


async def test_one_that_accepts_and_says_nothing() -> None:
    async with scripted() as (host, port):
        with pytest.raises(BrokerUnreachable, match="did not answer within 20 ms"):
            await Connection.open(host, port, timeout_ms=20)


async def test_a_number_that_has_no_room_fails_its_own_request_only() -> None:
    async with Broker() as broker:
        connection = await Connection.open("127.0.0.1", broker.port)
        try:
            with pytest.raises(NotSendable, match="does not fit its field of ListOffsets v1"):
                await connection.ask(
                    Api.LIST_OFFSETS,
                    version=1,
                    replica_id=-1,
                    topics=[{"name": "t", "partitions": [{"partition_index": 2**40, "timestamp": -1}]}],
                )
            assert (await connection.ask(Api.METADATA, version=1, topics=[])).brokers
        finally:
            await connection.close()
