"""A blocking client that speaks the bare protocol, for tests: what it sends is exactly what the test says.

A request is built from plain fields by the same compiled encoders that the broker answers with; the answer is read by
kio's own reader, so a mistake of our encoder does not cancel itself out. Nothing is retried, nothing negotiated::

    with RawClient(broker.bootstrap_servers) as client:
        answer = client.ask(Api.METADATA, 12, topics=None)
        client.send(Api.LIST_OFFSETS, 7, ...)       # pipelined: any number of sends,
        client.send(Api.FETCH, 12, ...)
        first, second = client.receive(), client.receive()   # then the answers in the same order
        client.send_frame(b"garbage")
        assert client.is_closed_by_peer()

Times are integers in milliseconds in what is sent and ``timedelta`` and ``datetime`` in what comes back, as in kio.
"""

from __future__ import annotations

import socket
from collections import deque
from functools import cache
from struct import Struct
from typing import Any, Self

from headrace.protocol.api import Api
from headrace.protocol.kio import entity_reader, load_request_schema, load_response_schema
from headrace.protocol.wire.encoder import encoder_of, put_string

_LENGTH = Struct(">i")
_HEADER = Struct(">hhi")
_CORRELATION_ID = Struct(">i")
# kio looks its schemas up by importing, which takes longer than all the rest.
_request_schema = cache(load_request_schema)
_response_schema = cache(load_response_schema)


class ClosedByPeer(Exception):
    """The broker has closed the connection where an answer was expected."""


class RawClient:
    def __init__(self, address: str, *, client_id: str | None = "raw-client", timeout_s: float = 10.0) -> None:
        """
        :param address: ``host:port``, such as ``Broker.bootstrap_servers``.
        :param timeout_s: how long any send or read may take before it raises ``TimeoutError``.
        """
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client_id = client_id
        self._next_correlation_id = 1
        self._unanswered: deque[tuple[Api, int, int]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    # -- requests and answers

    def ask(self, api: Api, version: int, /, **fields: Any) -> Any:
        """Sends a request and reads its answer."""
        self.send(api, version, **fields)
        return self.receive()

    def send(self, api: Api, version: int, /, *, expects_answer: bool = True, **fields: Any) -> int:
        """Sends a request without waiting; returns its correlation id."""
        correlation_id = self._next_correlation_id
        self._next_correlation_id += 1
        self.send_frame(encode_request(api, version, correlation_id, self._client_id, **fields))
        if expects_answer:
            self._unanswered.append((api, version, correlation_id))
        return correlation_id

    def receive(self) -> Any:
        """The answer to the oldest request that has none yet.

        :raises ClosedByPeer: if the connection ends before it.
        """
        api, version, correlation_id = self._unanswered.popleft()
        frame = self.read_frame()
        (got,) = _CORRELATION_ID.unpack_from(frame)
        assert got == correlation_id, f"the answer has the correlation id {got}, not {correlation_id}"
        return decode_response(api, version, frame)

    # -- bytes

    def send_frame(self, frame: bytes) -> None:
        """Sends bytes with their length before them."""
        self.send_bytes(_LENGTH.pack(len(frame)) + frame)

    def send_bytes(self, data: bytes | memoryview) -> None:
        self.socket.sendall(data)

    def read_frame(self) -> bytes:
        """The next frame without its length.

        :raises ClosedByPeer: if the connection ends before it.
        """
        (size_bytes,) = _LENGTH.unpack(self.read_bytes(4))
        return self.read_bytes(size_bytes)

    def read_bytes(self, size_bytes: int) -> bytes:
        data = bytearray(size_bytes)
        view = memoryview(data)
        while view:
            try:
                received_bytes = self.socket.recv_into(view)
            except ConnectionResetError:
                received_bytes = 0
            if not received_bytes:
                raise ClosedByPeer(f"with {len(view)} of {size_bytes} bytes missing")
            view = view[received_bytes:]
        return bytes(data)

    def is_closed_by_peer(self) -> bool:
        """Waits for the end of the connection: False if something else comes first, or nothing before the timeout."""
        try:
            return not self.socket.recv(1)
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False


def encode_request(api: Api, version: int, correlation_id: int, client_id: str | None, /, **fields: Any) -> bytes:
    """A request as it goes into a frame: header and body."""
    schema = _request_schema(api, version)
    out = bytearray(_HEADER.pack(api, version, correlation_id))
    put_string(out, client_id)
    if int(schema.__header_schema__.__version__) >= 2:
        out.append(0)
    try:
        encoder_of(schema)(out, fields, [])
    except KeyError as error:
        raise TypeError(
            f"{api.name} v{version} needs the field {error}; given: {', '.join(fields) or 'none'}"
        ) from error
    return bytes(out)


def decode_response(api: Api, version: int, frame: bytes) -> Any:
    """The answer in a frame, as kio's dataclass; every byte of the frame must belong to it."""
    schema = _response_schema(api, version)
    at = _CORRELATION_ID.size
    if int(schema.__header_schema__.__version__) >= 1:
        assert frame[at] == 0, "the response header has tagged fields"
        at += 1
    entity, size_bytes = entity_reader(schema)(frame, at)
    assert at + size_bytes == len(frame), f"{len(frame) - at - size_bytes} bytes follow the answer"
    return entity
