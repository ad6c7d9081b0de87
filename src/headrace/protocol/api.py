"""THE registry of the protocol: each API's key, name and versions; requests out of frames, responses into frames.

A request is ``api_key int16, api_version int16, correlation_id int32, client_id nullable string``, then (in flexible
versions) tagged fields, then the body. A response is the correlation id, in flexible versions an empty tag section,
then the body. ApiVersions never has that tag section: its reader does not know yet what we speak (KIP-511).

Schemas are kio's, loaded on first use, an API and version at a time: all of them together take seconds to import.
"""

from collections.abc import Generator
from enum import IntEnum
from functools import cache
from struct import Struct
from struct import error as StructError  # noqa: N812
from sys import maxsize
from typing import Any, NamedTuple

from headrace.protocol.array_guard import MAX_TAGS, Guard, GuardFailed, ManyElements, guard_of
from headrace.protocol.encoder import Encode, Message, Placed, encoder_of
from headrace.protocol.kio import (
    Reader,
    UnknownTag,
    decode_failures,
    entity_reader,
    load_request_schema,
    load_response_schema,
)
from headrace.protocol.kio import versions_of as kio_versions_of
from headrace.protocol.large_messages import AT_ONCE, MAX_ELEMENTS, open_message
from headrace.protocol.unknown_tags import without_unknown_tags


class Api(IntEnum):
    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75

    #: An enum's own hash is a Python function; these are keys on every request's way.
    __hash__ = int.__hash__

    @property
    def label(self) -> str:
        """Kafka's own spelling, as in its documentation and its metrics: ``ListOffsets``."""
        return _LABELS[self]

    @property
    def is_control(self) -> bool:
        """Whether the request comes from the controller, and may not wait behind a client's data (mission B)."""
        return self in _CONTROL


_LABELS = {api: "".join(word.capitalize() for word in api.name.split("_")) for api in Api}
_BY_KEY = {int(api): api for api in Api}
_CONTROL = frozenset({Api.LEADER_AND_ISR, Api.STOP_REPLICA, Api.UPDATE_METADATA, Api.CONTROLLED_SHUTDOWN})
#: Requests that change one thing (a group, a transaction), or that have filters: a handler needs all elements together.
#: Produce is one of them because a transaction's partitions are checked together. By default producers send 1 MiB at
#: most, which has room for fewer batches than are allowed here.
_WHOLE = frozenset(
    {
        Api.PRODUCE, Api.OFFSET_COMMIT, Api.TXN_OFFSET_COMMIT, Api.OFFSET_DELETE, Api.JOIN_GROUP, Api.SYNC_GROUP,
        Api.LEAVE_GROUP, Api.CONSUMER_GROUP_HEARTBEAT, Api.ADD_PARTITIONS_TO_TXN, Api.WRITE_TXN_MARKERS,
        Api.ALTER_REPLICA_LOG_DIRS, Api.LIST_GROUPS, Api.LIST_TRANSACTIONS, Api.LIST_CONFIG_RESOURCES,
    }
)  # fmt: skip
#: How many elements such a request may have: as many as take no longer than a few slices (``network/slices.py``).
MAX_WHOLE_ELEMENTS = 20_000
#: A fetch session remembers each partition that it was asked for. Followers of large clusters ask for very many.
MAX_FETCH_ELEMENTS = 100_000


#: The controller's requests name all partitions of a cluster, however many those are.
_MAX_ELEMENTS = dict.fromkeys(_WHOLE, MAX_WHOLE_ELEMENTS) | dict.fromkeys(_CONTROL, maxsize)


class BadRequest(Exception):
    """Bytes that are no request we can read. There is nothing to answer: the connection is closed."""


_FIXED_HEADER = Struct(">hhih")
_LENGTH_AND_CORRELATION = Struct(">ii")


class Spoken(NamedTuple):
    """What is needed to read one version of a request and to write its answer."""

    guard_body: Guard
    read_body: Reader
    encode_reply: Encode
    has_tagged_request_header: bool
    has_tagged_response_header: bool
    #: How many elements a request may have to be read at once.
    max_elements: int


class RequestHeader(NamedTuple):
    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    #: Where the body begins in the frame.
    body_at: int
    #: None where we do not speak that version.
    spoken: Spoken | None


@cache
def versions_of(api: Api) -> range:
    """The versions that we can read and write; empty where kio has no schema for the API."""
    return kio_versions_of(api)


@cache
def spoken(api: Api, version: int) -> Spoken | None:
    """How to speak a version; None if we do not."""
    if version not in versions_of(api):
        return None
    request, response = load_request_schema(api, version), load_response_schema(api, version)
    return Spoken(
        guard_body=guard_of(request),
        read_body=entity_reader(request),
        encode_reply=encoder_of(response),
        has_tagged_request_header=int(request.__header_schema__.__version__) >= 2,
        has_tagged_response_header=int(response.__header_schema__.__version__) >= 1,
        max_elements=_MAX_ELEMENTS.get(api, AT_ONCE),
    )


def read_request_header(frame: memoryview) -> RequestHeader:
    """
    :raises BadRequest: if the API is unknown or the header is cut short.
    """
    try:
        api_key, version, correlation_id, client_id_bytes = _FIXED_HEADER.unpack_from(frame)
        api = _BY_KEY.get(api_key)
        if api is None:
            raise BadRequest(f"there is no API {api_key}")
        at = _FIXED_HEADER.size
        client_id = None
        if client_id_bytes >= 0:
            client_id = str(frame[at : at + client_id_bytes], "utf-8")
            at += client_id_bytes
            if at > len(frame):
                raise BadRequest("the client id is cut short")
        how = spoken(api, version)
        if how is not None and how.has_tagged_request_header:
            at = _skip_tags(frame, at)
    except (ValueError, IndexError, StructError) as error:
        raise BadRequest(f"a request header of {len(frame)} bytes cannot be read: {error}") from None
    return RequestHeader(api, version, correlation_id, client_id, at, how)


def _skip_tags(frame: memoryview, at: int) -> int:
    if frame[at] == 0:
        return at + 1
    count, at = _uvarint(frame, at)
    if count > MAX_TAGS:
        raise BadRequest(f"the header has {count} tagged fields; at most {MAX_TAGS} are read")
    for _ in range(count):
        _, at = _uvarint(frame, at)
        size_bytes, at = _uvarint(frame, at)
        at += size_bytes
        if at > len(frame):
            raise BadRequest("a tagged field of the header is cut short")
    return at


def _uvarint(frame: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = frame[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 28:
            raise BadRequest("a length of the header is too long")


def read_request_body(header: RequestHeader, frame: memoryview) -> tuple[Any, int]:
    """The body as kio's dataclass of that version: ``Any``, because handlers are written once for all versions; and how
    many elements its arrays have.

    :raises BadRequest: if the version is not spoken, or the bytes are not a body of it, or it has too many elements.
    :raises ManyElements: if the body must be opened instead (:func:`open_request_body`).
    """
    how = header.spoken
    if how is None:
        raise BadRequest(f"{header.api.label} has no version {header.version}")
    left = [how.max_elements, MAX_TAGS]
    try:
        how.guard_body(frame, header.body_at, len(frame), left)
        try:
            body = how.read_body(frame, header.body_at)[0]
        except UnknownTag:
            schema = load_request_schema(header.api, header.version)
            body = how.read_body(without_unknown_tags(schema, frame[header.body_at :]), 0)[0]
    except ManyElements:
        if header.api in _MAX_ELEMENTS:
            raise BadRequest(f"{header.api.label} may have {how.max_elements} elements, and has more") from None
        raise
    except GuardFailed + decode_failures() as error:
        raise _unreadable(header, error) from None
    return body, how.max_elements - left[0]


def open_request_body(header: RequestHeader, frame: memoryview) -> Generator[None, None, Any]:
    """The body of a request with many elements, read piece by piece: whoever runs this may pause at each step.

    :raises BadRequest: as :func:`read_request_body`, or if there are more elements than we read in one request.
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
    """An answer that is bytes already, by one who knows its version; and which files go where in them."""

    body: bytearray
    placed: list[Placed]


def encode_response(how: Spoken, correlation_id: int, reply: Message | EncodedReply) -> tuple[bytearray, list[Placed]]:
    """A whole frame, length included; and which files go where in it, whose bytes the length counts already."""
    out = bytearray(8)
    if how.has_tagged_response_header:
        out.append(0)
    placed: list[Placed] = []
    if isinstance(reply, EncodedReply):
        placed = [(len(out) + position, sendable) for position, sendable in reply.placed]
        out += reply.body
    else:
        how.encode_reply(out, reply, placed)
    size_bytes = len(out) - 4
    for _, sendable in placed:
        size_bytes += len(sendable)
    _LENGTH_AND_CORRELATION.pack_into(out, 0, size_bytes, correlation_id)
    return out, placed
