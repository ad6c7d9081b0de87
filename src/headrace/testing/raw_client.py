"""A blocking client that sends exactly the requests and bytes that a test says.

Requests are encoded by the compiled encoders that the broker uses for responses. Responses are read by kio's own
reader, so a mistake in our encoder does not cancel itself out. The client retries nothing and negotiates nothing::

    with RawClient(broker.bootstrap_servers) as client:
        answer = client.ask(Api.DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=False)
        client.send(Api.LIST_OFFSETS, 7, ...)       # several sends without waiting,
        client.send(Api.FETCH, 12, ...)
        first, second = client.receive(), client.receive()   # then the answers in the same order
        client.send_frame(b"garbage")
        assert client.is_closed_by_peer()

Times are integers in milliseconds in requests; in responses they are ``timedelta`` and ``datetime``, as in kio.
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
# kio finds a schema by importing its module, which takes longer than encoding.
_request_schema = cache(load_request_schema)
_response_schema = cache(load_response_schema)


class ClosedByPeer(Exception):
    """The broker closed the connection instead of sending a response."""


class RawClient:
    """One connection to one broker. Not for use by several threads at once."""

    def __init__(self, address: str, *, client_id: str | None = "raw-client", timeout_s: float = 10.0) -> None:
        """Connects to a broker.

        :param address: ``host:port``, such as ``Broker.bootstrap_servers``.
        :param timeout_s: a send or a read that takes longer raises ``TimeoutError``.
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
        """Sends a request and returns its response, as kio's dataclass.

        :raises TypeError: if a field of the request is missing.
        :raises ClosedByPeer: if the broker closes the connection instead.
        """
        self.send(api, version, **fields)
        return self.receive()

    def send(self, api: Api, version: int, /, *, expects_answer: bool = True, **fields: Any) -> int:
        """Sends a request without waiting for the response; returns its correlation id."""
        correlation_id = self._next_correlation_id
        self._next_correlation_id += 1
        self.send_frame(encode_request(api, version, correlation_id, self._client_id, **fields))
        if expects_answer:
            self._unanswered.append((api, version, correlation_id))
        return correlation_id

    def receive(self) -> Any:
        """The response to the oldest request that has none yet.

        :raises ClosedByPeer: if the broker closes the connection instead.
        """
        api, version, correlation_id = self._unanswered.popleft()
        frame = self.read_frame()
        (got,) = _CORRELATION_ID.unpack_from(frame)
        assert got == correlation_id, f"the response has the correlation id {got}, not {correlation_id}"
        return decode_response(api, version, frame)

    # -- bytes

    def send_frame(self, frame: bytes) -> None:
        """Sends bytes as one frame: their length, then the bytes."""
        self.send_bytes(_LENGTH.pack(len(frame)) + frame)

    def send_bytes(self, data: bytes | memoryview) -> None:
        self.socket.sendall(data)

    def read_frame(self) -> bytes:
        """The next frame, without its length.

        :raises ClosedByPeer: if the connection ends before the frame does.
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
                raise ClosedByPeer(f"the broker closed the connection; {len(view)} of {size_bytes} bytes are missing")
            view = view[received_bytes:]
        return bytes(data)

    def is_closed_by_peer(self) -> bool:
        """Waits until the broker closes the connection; False if bytes arrive first, or nothing before the timeout."""
        try:
            return not self.socket.recv(1)
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False


def encode_request(api: Api, version: int, correlation_id: int, client_id: str | None, /, **fields: Any) -> bytes:
    """The header and the body of a request, without the length of the frame."""
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
    """The response in a frame, as kio's dataclass. Every byte of the frame must belong to the response."""
    schema = _response_schema(api, version)
    at = _CORRELATION_ID.size
    if int(schema.__header_schema__.__version__) >= 1:
        assert frame[at] == 0, "the response header has tagged fields"
        at += 1
    entity, size_bytes = entity_reader(schema)(frame, at)
    assert at + size_bytes == len(frame), f"{len(frame) - at - size_bytes} bytes follow the response"
    return entity
