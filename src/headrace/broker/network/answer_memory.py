"""Bounds the memory of large answers.

A short request can ask for a large answer: a group may have committed offsets of a hundred thousand partitions, and a
request may name the group a thousand times. A client that does not read leaves the answer in the broker's memory. So
an answer may have ``MAX_ANSWER_BYTES``, and all answers together ``ALL_ANSWERS_BYTES``, from the time at which they are
encoded until they are sent. Fetch is not counted: its records stay in their files, and it has limits of its own.

Above the limit of all answers, the connections are closed that have not read a large answer for ``PATIENCE_MS``, the
oldest first. If none is left, the connection is closed that asks for another large answer. Answers of less than
``LARGE_ANSWER_BYTES`` are never refused.

A complete answer is copied into one buffer without a pause. ``MAX_ANSWER_BYTES`` take 30 ms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from headrace.protocol.wire.server_codec import BadRequest

LARGE_ANSWER_BYTES = 1024 * 1024
MAX_ANSWER_BYTES = 64 * 1024 * 1024
ALL_ANSWERS_BYTES = 512 * 1024 * 1024
PATIENCE_MS = 10_000


class Receiver(Protocol):
    """The connection for which an answer is made."""

    #: The memory that counts bytes for the connection; None if there are none.
    answer_memory: AnswerMemory | None

    @property
    def is_closed(self) -> bool: ...
    def abort(self, reason: str) -> None: ...


class AnswerTooLarge(BadRequest):
    """The answer would take too much memory. The broker closes the connection."""


class AnswerMemory:
    """Counts the bytes of the answers of all connections."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._held: dict[Receiver, int] = {}
        #: The connections to which a large answer is being sent, and since when. The oldest is first.
        self._sending: dict[Receiver, int] = {}
        self._total_bytes = 0

    @property
    def total_bytes(self) -> int:
        return self._total_bytes

    def add(self, connection: Receiver, size_bytes: int) -> None:
        """Counts bytes of an answer, or no longer counts them if the number is negative.

        :raises AnswerTooLarge: if the answer, or all answers together, would be larger than the limit.
        """
        if connection.is_closed:
            return
        held_bytes = self._held.get(connection, 0) + size_bytes
        self._total_bytes += size_bytes
        self._held[connection] = held_bytes
        connection.answer_memory = self
        if size_bytes < 0:
            return
        if held_bytes > MAX_ANSWER_BYTES:
            raise AnswerTooLarge(f"the answer has more than {MAX_ANSWER_BYTES} bytes; ask for less in one request")
        if self._total_bytes > ALL_ANSWERS_BYTES and held_bytes > LARGE_ANSWER_BYTES:
            self._make_room()

    def _make_room(self) -> None:
        since_ms = self._now_ms() - PATIENCE_MS
        while self._total_bytes > ALL_ANSWERS_BYTES:
            oldest = next(iter(self._sending), None)
            if oldest is None or self._sending[oldest] > since_ms:
                raise AnswerTooLarge(f"the answers that are not yet sent have more than {ALL_ANSWERS_BYTES} bytes")
            oldest.abort(
                f"the client has not read its answer of {self._held[oldest]} bytes for {PATIENCE_MS} ms, and all "
                f"answers that are not yet sent have more than {ALL_ANSWERS_BYTES} bytes"
            )
            self.release(oldest)

    def send(self, connection: Receiver, size_bytes: int) -> None:
        """Counts a complete answer in place of its parts.

        :raises AnswerTooLarge: as :meth:`add`.
        """
        self.release(connection)
        self.add(connection, size_bytes)
        self._sending[connection] = self._now_ms()

    def release(self, connection: Receiver) -> None:
        """Forgets the answer of a connection: it is sent, or the connection is closed."""
        connection.answer_memory = None
        self._sending.pop(connection, None)
        self._total_bytes -= self._held.pop(connection, 0)
