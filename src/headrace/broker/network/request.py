"""Holds a request while the broker handles it, and the moments at which the request passed each stage."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import cache
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from headrace.broker.network.slices import FEW_ELEMENTS, Answers, Slices
from headrace.protocol.api import Api
from headrace.protocol.kio import load_response_schema
from headrace.protocol.wire.encoder import Encode, nested_encoder
from headrace.protocol.wire.large_messages import ElementArray
from headrace.protocol.wire.server_codec import (
    EncodedReply,
    RequestHeader,
    open_request_body,
    read_request_body,
    server_codec,
)

if TYPE_CHECKING:
    from headrace.broker.network.connection import Connection
    from headrace.broker.quotas.client_rates import Throttled

T = TypeVar("T")

#: An answer; None where the protocol has none (Produce with acks=0).
Reply = dict[str, Any] | EncodedReply | None

_MS = timedelta(milliseconds=1)


def milliseconds(duration: timedelta) -> int:
    """Returns a duration, which kio decodes to a timedelta, in milliseconds."""
    return duration // _MS


@cache
def _answer_encoder(api: Api, version: int, path: tuple[str, ...]) -> Encode:
    return nested_encoder(load_response_schema(api, version), *path)


class Request:
    """The moments are nanoseconds of ``perf_counter_ns``; 0 if the request skipped or did not reach the stage."""

    __slots__ = (
        "_frame", "_header", "answered_at", "api", "body", "busy_ns", "client_id", "codec", "connection",
        "correlation_id", "has_few_elements", "is_charged", "is_from_follower", "is_login", "parked_at", "received_at",
        "running_since", "sending_at", "sent_at", "size_bytes", "slices", "started_at", "thread_ns", "throttle_ms",
        "throttled_by", "unmute_ms", "version",
    )  # fmt: skip

    def __init__(
        self, header: RequestHeader, frame: memoryview, connection: Connection, *, is_login: bool = False
    ) -> None:
        self.api: Api = header.api
        self.version = header.version
        self.correlation_id = header.correlation_id
        self.client_id = header.client_id
        self.connection = connection
        self.size_bytes = len(frame)
        self.body: Any = None
        self.codec = header.codec
        #: Whether this is a Fetch of a follower.
        self.is_from_follower = False
        #: Whether the request is part of a login. Such a request does not wait for other requests.
        self.is_login = is_login
        #: Whether a loop over all elements is short enough without slices.
        self.has_few_elements = False
        #: Whether the quotas have counted the request. They do not count logins.
        self.is_charged = is_login
        #: For how long the connection is muted after the answer, until when, and the quota that is exceeded.
        self.throttle_ms = 0
        self.unmute_ms: int
        self.throttled_by: Throttled | None = None
        #: The dispatcher sets it.
        self.slices: Slices
        self._header = header
        self._frame: memoryview | None = frame
        self.received_at = perf_counter_ns()
        self.started_at = self.parked_at = self.answered_at = self.sending_at = self.sent_at = 0
        #: Since when the handler runs without a break, for how long it ran before that, and how long other threads
        #: worked for it.
        self.running_since = self.busy_ns = self.thread_ns = 0

    def read_body(self) -> None:
        """Decodes the body. Releases the frame, so that the connection can receive into its buffer again.

        :raises BadRequest: if the bytes are not a body of that version.
        :raises ManyElements: if the body is large and has to be opened by :meth:`open_body` instead.
        """
        assert self._frame is not None
        self.body, element_count = read_request_body(self._header, self._frame)
        self.has_few_elements = element_count <= FEW_ELEMENTS
        self._frame = None

    def on_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        """Calls a function on another thread, and counts its time as time of this request. The handler waits for it."""
        started = perf_counter_ns()
        try:
            return function(*arguments)
        finally:
            self.thread_ns += perf_counter_ns() - started

    def throttle(self, throttle_ms: int, by: Throttled, now_ms: int) -> None:
        """Mutes the connection after the answer. Of several quotas, the longest throttle time counts."""
        if throttle_ms > self.throttle_ms:
            self.throttle_ms, self.throttled_by, self.unmute_ms = throttle_ms, by, now_ms + throttle_ms

    async def open_body(self) -> None:
        """Decodes a body with many elements, in slices. Its arrays keep the frame until the request is answered.

        :raises BadRequest: if the bytes are not a body of that version.
        """
        assert self._frame is not None
        frame, self._frame = self._frame, None
        self.body = await self.slices.run(open_request_body(self._header, frame))

    async def answers(
        self, items: Sequence[T], answer: Callable[[T], Any], *path: str, from_state: bool = False
    ) -> Answers | list[Any]:
        """Returns the answers to all elements of one of the request's arrays, made in slices.

        :param answer: returns a dict or encoded bytes. If it returns None, the response leaves the element out.
        :param path: the names of the response's arrays that lead to these answers.
        :param from_state: whether the size of an answer depends on the broker's state, and not on the request. Such
            answers are always made in slices, and encoded as they are made.
        """
        if from_state:
            return await self.slices.fill(self.state_answers(*path), items, answer)
        if len(items) <= FEW_ELEMENTS:
            return [made for item in items if (made := answer(item)) is not None]
        return await self.slices.fill(self.collect(items, *path), items, answer)

    async def awaited_answers(
        self, items: Sequence[T], answer: Callable[[T], Awaitable[Any]], *path: str, from_state: bool = False
    ) -> Answers | list[Any]:
        """The same with a function that may wait."""
        if from_state:
            return await self.slices.fill_awaited(self.state_answers(*path), items, answer)
        if len(items) <= FEW_ELEMENTS:
            return [made for item in items if (made := await answer(item)) is not None]
        return await self.slices.fill_awaited(self.collect(items, *path), items, answer)

    def collect(self, items: Sequence[object], *path: str) -> Answers:
        """Makes an empty list of answers to an array of the request. The handler adds the answers."""
        return self.state_answers(*path) if isinstance(items, ElementArray) else Answers(None)

    def state_answers(self, *path: str) -> Answers:
        """Makes an empty list for an array of the response that is made from the broker's state."""
        return Answers(self.answer_encoder(*path), self.count_answer_bytes)

    def count_answer_bytes(self, size_bytes: int) -> None:
        """
        :raises AnswerTooLarge: if the answer takes too much memory.
        """
        self.slices.answer_memory.add(self.connection, size_bytes)

    def answer_encoder(self, *path: str) -> Encode:
        """Returns the encoder of the elements of an array of the response."""
        return _answer_encoder(self.api, self.version, path)

    def answer_in(self, version: int) -> None:
        """Answers in another version than that of the request. Only ApiVersions does so (KIP-511)."""
        self.version = version
        self.codec = server_codec(self.api, version)


class RawToken(NamedTuple):
    """Has the field of a SaslAuthenticate request."""

    auth_bytes: bytes


class RawTokenRequest(Request):
    """A frame that is a token of a SASL mechanism, without a header: what clients send after SaslHandshake v0."""

    __slots__ = ()

    def __init__(self, frame: memoryview, connection: Connection) -> None:
        header = RequestHeader(Api.SASL_AUTHENTICATE, 0, 0, None, 0, None)
        super().__init__(header, frame, connection, is_login=True)

    def read_body(self) -> None:
        assert self._frame is not None
        self.body, self._frame = RawToken(bytes(self._frame)), None
