"""A request on its way through the broker, with the moments at which it passed each stage."""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from headrace.protocol.api import Api, RequestHeader, read_request_body, spoken

if TYPE_CHECKING:
    from headrace.broker.connection import Connection


class Request:
    """The moments are nanoseconds of ``perf_counter_ns``; 0 means that a stage was not reached or was skipped."""

    __slots__ = (
        "_frame", "_header", "answered_at", "api", "body", "client_id", "connection", "correlation_id",
        "is_from_follower", "parked_at", "received_at", "sending_at", "size_bytes", "spoken", "started_at", "version",
    )  # fmt: skip

    def __init__(self, header: RequestHeader, frame: memoryview, connection: Connection) -> None:
        self.api: Api = header.api
        self.version = header.version
        self.correlation_id = header.correlation_id
        self.client_id = header.client_id
        self.connection = connection
        self.size_bytes = len(frame)
        self.body: Any = None
        self.spoken = header.spoken
        #: A Fetch of a broker that follows.
        self.is_from_follower = False
        self._header = header
        self._frame: memoryview | None = frame
        self.received_at = perf_counter_ns()
        self.started_at = self.parked_at = self.answered_at = self.sending_at = 0

    def read_body(self) -> None:
        """Decodes the body; the frame is let go, so that the connection may receive into its buffer again.

        :raises BadRequest: if the bytes are no body of that version.
        """
        assert self._frame is not None
        self.body = read_request_body(self._header, self._frame)
        self._frame = None

    def answer_in(self, version: int) -> None:
        """The answer has another version than the request: ApiVersions alone (KIP-511)."""
        self.version = version
        self.spoken = spoken(self.api, version)
