"""Writes requests into frames, and reads responses from frames: the client's side of the wire, without I/O.

A request is ``length int32, api_key int16, api_version int16, correlation_id int32, client_id nullable string``, in
flexible versions an empty tag section, then the body. The same compiled encoders write the bodies of requests and, in
``server_codec.py``, of responses. A response is the correlation id, in flexible versions tagged fields, then the body,
which kio reads.
"""

from collections.abc import Mapping
from functools import cache
from struct import Struct
from struct import error as struct_error
from typing import Any, NamedTuple

from headrace.protocol.api import Api
from headrace.protocol.errors import HeadraceError
from headrace.protocol.kio import (
    Reader,
    UnknownTag,
    decode_failures,
    entity_reader,
    load_request_schema,
    load_response_schema,
)
from headrace.protocol.wire.encoder import Encode, Placed, encoder_of, put_string
from headrace.protocol.wire.reader import skip_tagged_fields
from headrace.protocol.wire.unknown_tags import without_unknown_tags

_PREFIX = Struct(">ihhi")  # length, API, version, correlation id
_LENGTH = Struct(">i")
_CORRELATION_ID_BYTES = 4


class BadResponse(HeadraceError):
    """A broker sent bytes that are not a response to the request."""


class NotSendable(HeadraceError, ValueError):
    """A request has a number that is too large for its field in the protocol, or a text that is too long."""


class ClientCodec(NamedTuple):
    """Writes one version of a request, and reads its response."""

    encode: Encode
    read: Reader
    response_schema: type
    has_tagged_request_header: bool
    has_tagged_response_header: bool


@cache
def client_codec(api: Api, version: int) -> ClientCodec:
    request, response = load_request_schema(api, version), load_response_schema(api, version)
    return ClientCodec(
        encode=encoder_of(request),
        read=entity_reader(response),
        response_schema=response,
        has_tagged_request_header=int(request.__header_schema__.__version__) >= 2,
        has_tagged_response_header=int(response.__header_schema__.__version__) >= 1,
    )


class Pieces:
    """Records that lie in several buffers, and are sent from there. The encoder treats them like a file: it notes their
    place in the output, and copies nothing."""

    __slots__ = ("_size_bytes", "pieces")

    def __init__(self, *pieces: bytes | memoryview) -> None:
        self.pieces = pieces
        self._size_bytes = sum(map(len, pieces))

    def __len__(self) -> int:
        return self._size_bytes

    def fileno(self) -> int:
        raise OSError("not a file")


def encode_request(
    api: Api, version: int, correlation_id: int, client_id: str | None, fields: Mapping[str, Any] | bytearray
) -> list[bytes | bytearray | memoryview]:
    """A request with its length before it, as the buffers that follow each other on the wire. There is one buffer,
    unless a field holds :class:`Pieces`.

    :param fields: the fields of the body; or the body, if the caller has encoded it.
    :raises NotSendable: if a value does not fit its field.
    """
    codec = client_codec(api, version)
    out = bytearray(_PREFIX.pack(0, api, version, correlation_id))
    put_string(out, client_id)
    if codec.has_tagged_request_header:
        out.append(0)
    placed: list[Placed] = []
    if isinstance(fields, bytearray):
        out += fields
    else:
        try:
            codec.encode(out, fields, placed)
        except (struct_error, OverflowError) as error:
            raise NotSendable(f"a value does not fit its field of {api.label} v{version}: {error}") from error
    size_bytes = len(out) + (sum(len(pieces) for _, pieces in placed) if placed else 0)
    _LENGTH.pack_into(out, 0, size_bytes - _LENGTH.size)
    if not placed:
        return [out]
    parts: list[bytes | bytearray | memoryview] = []
    start = 0
    for at, pieces in placed:
        assert isinstance(pieces, Pieces), "a client sends no files"
        parts.append(out[start:at])
        parts += pieces.pieces
        start = at
    parts.append(out[start:])
    return parts


def body_at(api: Api, version: int, frame: bytes | memoryview) -> int:
    """Returns the position of the body of a response in its frame.

    :raises IndexError: if the frame ends inside the header.
    :raises ValueError: if a tagged field of the header goes past the end of the frame.
    """
    at = _CORRELATION_ID_BYTES
    if client_codec(api, version).has_tagged_response_header:
        return skip_tagged_fields(frame, at)
    return at


def decode_response(api: Api, version: int, frame: bytes) -> Any:
    """The response in a frame, as kio's dataclass.

    :raises BadResponse: if the bytes are not a response of that API and version.
    """
    codec = client_codec(api, version)
    try:
        at = body_at(api, version, frame)
        try:
            return codec.read(frame, at)[0]
        except UnknownTag:
            return codec.read(without_unknown_tags(codec.response_schema, memoryview(frame)[at:]), 0)[0]
    except _unreadable() as error:
        raise BadResponse(f"the response to {api.label} v{version} cannot be read: {error}") from error


def _unreadable() -> tuple[type[Exception], ...]:
    return (*decode_failures(), IndexError, KeyError)
