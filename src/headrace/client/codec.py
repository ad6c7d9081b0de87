"""Requests into frames and answers out of frames, without I/O: the mirror image of ``protocol.api``.

A request is ``length int32, api_key int16, api_version int16, correlation_id int32, client_id nullable string``, in
flexible versions an empty tag section, then the body, written by the same compiled encoders that the broker answers
with. An answer is the correlation id, in flexible versions tagged fields, then the body, read by kio.
"""

from collections.abc import Mapping
from functools import cache
from struct import Struct
from struct import error as struct_error
from typing import Any, NamedTuple

from headrace.client.errors import BadResponse, NotSendable
from headrace.protocol.api import Api
from headrace.protocol.encoder import Encode, Placed, encoder_of, put_string
from headrace.protocol.kio import (
    Reader,
    UnknownTag,
    decode_failures,
    entity_reader,
    load_request_schema,
    load_response_schema,
)
from headrace.protocol.unknown_tags import without_unknown_tags

_PREFIX = Struct(">ihhi")  # length, API, version, correlation id
_LENGTH = Struct(">i")
_CORRELATION_ID_BYTES = 4


class Codec(NamedTuple):
    """What is needed to write one version of a request and to read its answer."""

    encode: Encode
    read: Reader
    response_schema: type
    has_tagged_request_header: bool
    has_tagged_response_header: bool


@cache
def codec(api: Api, version: int) -> Codec:
    request, response = load_request_schema(api, version), load_response_schema(api, version)
    return Codec(
        encode=encoder_of(request),
        read=entity_reader(response),
        response_schema=response,
        has_tagged_request_header=int(request.__header_schema__.__version__) >= 2,
        has_tagged_response_header=int(response.__header_schema__.__version__) >= 1,
    )


class Pieces:
    """Records that lie in several places, to be sent from there: the encoder takes them for a file and copies none."""

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
    """A request with its length before it, in the parts that follow each other; one, unless there are Pieces.

    :param fields: or the body, by one who has encoded it.
    :raises NotSendable: if a value has no room where it belongs.
    """
    how = codec(api, version)
    out = bytearray(_PREFIX.pack(0, api, version, correlation_id))
    put_string(out, client_id)
    if how.has_tagged_request_header:
        out.append(0)
    placed: list[Placed] = []
    if isinstance(fields, bytearray):
        out += fields
    else:
        try:
            how.encode(out, fields, placed)
        except (struct_error, OverflowError) as error:
            raise NotSendable(f"{api.label} v{version} has no room for a value: {error}") from error
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
    """Where the body of an answer begins in its frame."""
    at = _CORRELATION_ID_BYTES
    if codec(api, version).has_tagged_response_header:
        if frame[at] == 0:
            return at + 1
        tags, at = _uvarint(frame, at)
        for _ in range(tags):
            _, at = _uvarint(frame, at)
            size_bytes, at = _uvarint(frame, at)
            at += size_bytes
    return at


def decode_response(api: Api, version: int, frame: bytes) -> Any:
    """The answer in a frame, as kio's dataclass.

    :raises BadResponse: if it is none of that API and version.
    """
    how = codec(api, version)
    try:
        at = body_at(api, version, frame)
        try:
            return how.read(frame, at)[0]
        except UnknownTag:
            return how.read(without_unknown_tags(how.response_schema, memoryview(frame)[at:]), 0)[0]
    except _unreadable() as error:
        raise BadResponse(f"an answer to {api.label} v{version} that cannot be read: {error}") from error


def _unreadable() -> tuple[type[Exception], ...]:
    return (*decode_failures(), IndexError, KeyError)


def _uvarint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
