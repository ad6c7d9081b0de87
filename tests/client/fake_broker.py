"""A broker that knows how to log clients in, and what a hostile broker can do instead.

It answers ApiVersions, SaslHandshake, SaslAuthenticate and Metadata (no topics), and notes every request. A test
replaces single answers by functions in ``answers``.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from struct import pack
from typing import Any

from headrace.protocol.api import Api
from headrace.protocol.kio import ErrorCode, entity_reader, load_request_schema, load_response_schema
from headrace.protocol.wire.encoder import encoder_of
from headrace.security.sasl.mechanism import AuthenticationFailed
from headrace.security.sasl.plain import PlainServer, PlainUsers
from headrace.security.sasl.scram import new_credential
from headrace.security.sasl.scram_server import Decoys, ScramAccount, ScramServer

SERVED = {Api.API_VERSIONS: (0, 3), Api.METADATA: (0, 12), Api.SASL_HANDSHAKE: (0, 1), Api.SASL_AUTHENTICATE: (0, 2)}
_LONGEST_FRAME_BYTES = 100_000
Answer = Callable[[Any], dict[str, object] | bytes | None]


class FakeBroker:
    def __init__(self, mechanisms=None, *, lifetimes_ms=(), served=None) -> None:
        """
        :param mechanisms: makes the server's side of each login, by the mechanism's name.
        :param lifetimes_ms: the lifetime of the first session, of the second, ...; later sessions have no end.
        """
        self.mechanisms = {"PLAIN": lambda: PlainServer(PlainUsers({"alice": "secret"}))}
        self.mechanisms.update(mechanisms or {})
        self.served = SERVED if served is None else served
        self.lifetimes_ms = list(lifetimes_ms)
        #: By API: a function of the request that returns the fields of the answer, a whole frame, or None (silence).
        self.answers: dict[Api, Answer] = {}
        self.seen: list[Api] = []
        #: Each request: its API, its body, and when it arrived, in the loop's time.
        self.requests: list[tuple[Api, Any, float]] = []
        self.logins = 0
        self.address = ("", 0)
        self._tasks: set[asyncio.Task] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        login: dict[str, Any] = {}
        self._tasks.add(asyncio.current_task())
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                size_bytes = int.from_bytes(await reader.readexactly(4), "big")
                if size_bytes > _LONGEST_FRAME_BYTES:
                    break
                frame = await reader.readexactly(size_bytes)
                answer = self._answer(frame, login)
                if answer is not None:
                    writer.write(answer)
        writer.close()
        with suppress(ConnectionError, OSError):
            await writer.wait_closed()

    def of(self, api: Api) -> list[Any]:
        """The bodies of the requests of one API."""
        return [request for one, request, _ in self.requests if one is api]

    def arrivals(self, api: Api) -> list[float]:
        return [moment for one, _, moment in self.requests if one is api]

    @property
    def servers(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    async def end(self) -> None:
        """Waits until all clients have closed their connections."""
        _, left = await asyncio.wait(self._tasks, timeout=5) if self._tasks else (None, ())
        assert not left, "a client did not close its connection"

    def _answer(self, frame: bytes, login: dict[str, Any]) -> bytes | None:
        api, version = Api(int.from_bytes(frame[:2], "big")), int.from_bytes(frame[2:4], "big")
        self.seen.append(api)
        schema = load_request_schema(api, version)
        at = 10 + max(0, int.from_bytes(frame[8:10], "big", signed=True))
        at += int(schema.__header_schema__.__version__) >= 2
        request, _ = entity_reader(schema)(frame, at)
        self.requests.append((api, request, asyncio.get_running_loop().time()))
        fields = self.answers[api](request) if api in self.answers else self._usual(api, request, login)
        if fields is None or isinstance(fields, bytes):
            return fields
        response = load_response_schema(api, version)
        out = bytearray(frame[4:8])
        if int(response.__header_schema__.__version__) >= 1:
            out.append(0)
        encoder_of(response)(out, fields, [])
        return pack(">i", len(out)) + out

    def _usual(self, api: Api, request: Any, login: dict[str, Any]) -> dict[str, object]:
        match api:
            case Api.API_VERSIONS:
                keys = [{"api_key": int(a), "min_version": v[0], "max_version": v[1]} for a, v in self.served.items()]
                return {"error_code": 0, "api_keys": keys}
            case Api.SASL_HANDSHAKE:
                names = list(self.mechanisms)
                if request.mechanism not in names:
                    return {"error_code": ErrorCode.unsupported_sasl_mechanism.value, "mechanisms": names}
                login["now"] = self.mechanisms[request.mechanism]()
                return {"error_code": 0, "mechanisms": names}
            case Api.SASL_AUTHENTICATE:
                return self._authenticate(request.auth_bytes, login["now"])
            case _:
                return {"brokers": [], "topics": [], "cluster_id": "c", "controller_id": -1}

    def _authenticate(self, token: bytes, mechanism: Any) -> dict[str, object]:
        try:
            challenge = mechanism.step(token)
        except AuthenticationFailed as error:
            code = ErrorCode.sasl_authentication_failed.value
            return authenticated(b"", code=code, message=error.for_peer or "Authentication failed")
        lifetime_ms = 0
        if mechanism.is_complete:
            self.logins += 1
            lifetime_ms = self.lifetimes_ms.pop(0) if self.lifetimes_ms else 0
        return authenticated(challenge, lifetime_ms=lifetime_ms)


def authenticated(challenge: bytes, *, code: int = 0, message: str | None = None, lifetime_ms: int = 0):
    """The fields of an answer to SaslAuthenticate."""
    return {"error_code": code, "error_message": message, "auth_bytes": challenge, "session_lifetime": lifetime_ms}


@asynccontextmanager
async def running(broker: FakeBroker, tls: Any = None) -> AsyncIterator[FakeBroker]:
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        broker.address = server.sockets[0].getsockname()[:2]
        yield broker
        await broker.end()


def scram_server(mechanism: str, user: str, password: str) -> Callable[[], ScramServer]:
    account = ScramAccount(new_credential(mechanism, password), user)

    def find(_mechanism: str, name: str, *, is_token: bool) -> ScramAccount | None:
        return account if name == user and not is_token else None

    return lambda: ScramServer(mechanism, find, Decoys(b"secret", lambda _: []))


def serving_a_topic(broker: FakeBroker, **throttles_ms: int) -> FakeBroker:
    """Makes a broker that has a topic of one partition, and nothing to fetch."""
    broker.served = {
        **broker.served, Api.METADATA: (0, 9), Api.FETCH: (4, 11), Api.LIST_OFFSETS: (1, 5), Api.CREATE_TOPICS: (2, 7),
        Api.DELETE_TOPICS: (1, 6), Api.CREATE_PARTITIONS: (0, 3),
    }  # fmt: skip
    partition = {"error_code": 0, "partition_index": 0, "leader_id": 1, "replica_nodes": [1], "isr_nodes": [1]}
    host, port = "127.0.0.1", lambda: broker.address[1]
    broker.answers[Api.METADATA] = lambda _: {
        "brokers": [{"node_id": 1, "host": host, "port": port(), "rack": None}],
        "topics": [{"error_code": 0, "name": "t", "is_internal": False, "partitions": [partition]}],
        "cluster_id": "c",
        "controller_id": 1,
    }
    found = {"partition_index": 0, "error_code": 0, "timestamp": -1, "offset": 0, "leader_epoch": 0}
    broker.answers[Api.LIST_OFFSETS] = lambda _: {"topics": [{"name": "t", "partitions": [found]}]}
    broker.answers[Api.FETCH] = lambda _: {
        "throttle_time": throttles_ms.get("fetch", 0) if len(broker.of(Api.FETCH)) == 1 else 0,
        "error_code": 0,
        "session_id": 0,
        "responses": [],
    }
    return broker
