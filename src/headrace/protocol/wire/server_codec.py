"""Reads requests from frames, and writes responses into frames: the broker's side of the wire.

A request is ``api_key int16, api_version int16, correlation_id int32, client_id nullable string``, then (in flexible
versions) tagged fields, then the body. A response is the correlation id, in flexible versions an empty tag section,
then the body. The response to ApiVersions never has that tag section: the client that reads it does not know yet which
versions the broker speaks (KIP-511).

The schemas are kio's. Each API and version is loaded when it is first used, because all schemas together take seconds
to import.
"""

from collections.abc import Generator
from functools import cache
from struct import Struct
from struct import error as StructError  # noqa: N812
from sys import maxsize
from typing import Any, NamedTuple

from headrace.protocol.api import CONTROL_APIS, Api, versions_of
from headrace.protocol.kio import (
    Reader,
    UnknownTag,
    decode_failures,
    entity_reader,
    load_request_schema,
    load_response_schema,
)
from headrace.protocol.wire.array_guard import MAX_TAGS, Guard, GuardFailed, ManyElements, guard_of
from headrace.protocol.wire.encoder import Encode, Message, Placed, encoder_of
from headrace.protocol.wire.large_messages import AT_ONCE, MAX_ELEMENTS, open_message
from headrace.protocol.wire.produce_request import LARGE_BATCH_BYTES, LARGE_REQUEST_BYTES, read_produce_request
from headrace.protocol.wire.reader import skip_tagged_fields
from headrace.protocol.wire.unknown_tags import without_unknown_tags

_BY_KEY = {int(api): api for api in Api}
#: Requests that change one thing (a group, a transaction), or that have filters: their handlers need all elements
#: together. Produce is one of them because the broker checks all partitions of a transaction together. By default a
#: producer sends at most 1 MiB per request, which has room for fewer batches than the limit allows.
_WHOLE = frozenset(
    {
        Api.PRODUCE, Api.OFFSET_COMMIT, Api.TXN_OFFSET_COMMIT, Api.OFFSET_DELETE, Api.JOIN_GROUP, Api.SYNC_GROUP,
        Api.LEAVE_GROUP, Api.CONSUMER_GROUP_HEARTBEAT, Api.ADD_PARTITIONS_TO_TXN, Api.WRITE_TXN_MARKERS,
        Api.ALTER_REPLICA_LOG_DIRS, Api.LIST_GROUPS, Api.LIST_TRANSACTIONS, Api.LIST_CONFIG_RESOURCES,
        Api.DESCRIBE_USER_SCRAM_CREDENTIALS, Api.ALTER_USER_SCRAM_CREDENTIALS,
        Api.CREATE_DELEGATION_TOKEN, Api.DESCRIBE_DELEGATION_TOKEN,
    }
)  # fmt: skip
#: How many elements such a request may have. 20,000 take no longer than a few slices (``broker/network/slices.py``).
MAX_WHOLE_ELEMENTS = 20_000
#: A fetch session remembers each partition of its requests. Followers in large clusters fetch very many partitions.
MAX_FETCH_ELEMENTS = 100_000


#: The controller's requests name all partitions of a cluster, so they have no limit.
_MAX_ELEMENTS = dict.fromkeys(_WHOLE, MAX_WHOLE_ELEMENTS) | dict.fromkeys(CONTROL_APIS, maxsize)

_FIXED_HEADER = Struct(">hhih")
_LENGTH_AND_CORRELATION = Struct(">ii")


class BadRequest(Exception):
    """The bytes are not a request that we can read. There is no response: the broker closes the connection."""


class ServerCodec(NamedTuple):
    """Reads one version of a request, and writes its response."""

    guard_body: Guard
    read_body: Reader
    encode_reply: Encode
    has_tagged_request_header: bool
    has_tagged_response_header: bool
    #: A request with more elements is not read in one call.
    max_elements: int


class RequestHeader(NamedTuple):
    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    #: Where the body begins in the frame.
    body_at: int
    #: None if we do not speak that version.
    codec: ServerCodec | None


@cache
def server_codec(api: Api, version: int) -> ServerCodec | None:
    """The codec of a version; None if we do not speak that version."""
    if version not in versions_of(api):
        return None
    request, response = load_request_schema(api, version), load_response_schema(api, version)
    return ServerCodec(
        guard_body=guard_of(request),
        read_body=entity_reader(request),
        encode_reply=encoder_of(response),
        has_tagged_request_header=int(request.__header_schema__.__version__) >= 2,
        has_tagged_response_header=int(response.__header_schema__.__version__) >= 1,
        max_elements=_MAX_ELEMENTS.get(api, AT_ONCE),
    )


def read_request_header(frame: memoryview, max_tags: int = MAX_TAGS) -> RequestHeader:
    """
    :param max_tags: how many tagged fields the header may have. No client sends any so far.
    :raises BadRequest: if the API is unknown, or the frame ends inside the header.
    """
    try:
        api_key, version, correlation_id, client_id_bytes = _FIXED_HEADER.unpack_from(frame)
        api = _BY_KEY.get(api_key)
        if api is None:
            raise BadRequest(f"there is no API with the key {api_key}")
        at = _FIXED_HEADER.size
        client_id = None
        if client_id_bytes >= 0:
            client_id = str(frame[at : at + client_id_bytes], "utf-8")
            at += client_id_bytes
            if at > len(frame):
                raise BadRequest("the frame ends inside the client id")
        codec = server_codec(api, version)
        if codec is not None and codec.has_tagged_request_header:
            at = skip_tagged_fields(frame, at, max_tags)
    except (ValueError, IndexError, StructError) as error:
        raise BadRequest(f"a request header of {len(frame)} bytes cannot be read: {error}") from None
    return RequestHeader(api, version, correlation_id, client_id, at, codec)


def read_request_body(header: RequestHeader, frame: memoryview) -> tuple[Any, int]:
    """Reads a body; returns kio's dataclass of that version, and how many elements the arrays of the body have. The
    body is ``Any``, because handlers are written once for all versions. A Produce request with large batches becomes an
    object with the same fields, whose records are views of the frame (``produce_request.py``).

    :raises BadRequest: if we do not speak the version, if the bytes are not a body of it, or for too many elements.
    :raises ManyElements: if the body must be opened instead (:func:`open_request_body`).
    """
    codec = header.codec
    if codec is None:
        raise BadRequest(f"{header.api.label} has no version {header.version}")
    left = [codec.max_elements, MAX_TAGS]
    try:
        codec.guard_body(frame, header.body_at, len(frame), left)
        try:
            if len(frame) > LARGE_REQUEST_BYTES and _has_large_batches(
                header, len(frame), codec.max_elements - left[0]
            ):
                body = read_produce_request(frame, header.body_at, header.version)
            else:
                body = codec.read_body(frame, header.body_at)[0]
        except UnknownTag:
            schema = load_request_schema(header.api, header.version)
            body = codec.read_body(without_unknown_tags(schema, frame[header.body_at :]), 0)[0]
    except ManyElements:
        if header.api in _MAX_ELEMENTS:
            raise BadRequest(f"{header.api.label} may have {codec.max_elements} elements, and has more") from None
        raise
    except GuardFailed + decode_failures() as error:
        raise _unreadable(header, error) from None
    return body, codec.max_elements - left[0]


def _has_large_batches(header: RequestHeader, size_bytes: int, element_count: int) -> bool:
    return header.api is Api.PRODUCE and size_bytes > LARGE_BATCH_BYTES * element_count


def open_request_body(header: RequestHeader, frame: memoryview) -> Generator[None, None, Any]:
    """Reads the body of a request with many elements, piece by piece. The caller may pause at each step.

    :raises BadRequest: as :func:`read_request_body`, or if the request has more elements than we read at all.
    """
    schema = load_request_schema(header.api, header.version)
    max_elements = MAX_FETCH_ELEMENTS if header.api is Api.FETCH else MAX_ELEMENTS
    try:
        body, _ = yield from open_message(schema, frame, header.body_at, max_elements)
    except GuardFailed + decode_failures() as error:
        raise _unreadable(header, error) from None
    return body


def _unreadable(header: RequestHeader, error: Exception) -> BadRequest:
    return BadRequest(f"the body of {header.api.label} v{header.version} cannot be read: {error}")


class EncodedReply(NamedTuple):
    """The body of a response that its handler has encoded itself, and which files go where in it."""

    body: bytearray
    placed: list[Placed]


def encode_response(
    codec: ServerCodec, correlation_id: int, reply: Message | EncodedReply
) -> tuple[bytearray, list[Placed]]:
    """A whole frame with its length, and which files go where in it. The length counts the bytes of those files."""
    out = bytearray(8)
    if codec.has_tagged_response_header:
        out.append(0)
    placed: list[Placed] = []
    if isinstance(reply, EncodedReply):
        placed = [(len(out) + position, sendable) for position, sendable in reply.placed]
        out += reply.body
    else:
        codec.encode_reply(out, reply, placed)
    size_bytes = len(out) - 4
    for _, sendable in placed:
        size_bytes += len(sendable)
    _LENGTH_AND_CORRELATION.pack_into(out, 0, size_bytes, correlation_id)
    return out, placed
