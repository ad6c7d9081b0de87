"""A fetch session (KIP-227): the broker remembers what a reader asks for, and the reader sends only what changed.

::

    session id, epoch    means
    0, 0                 a full request, and please open a session
    n, 0                 a full request that closes session n and opens another
    n, 1 2 3 ...         an incremental one: partitions that are new or have changed, and those to forget
    n, -1                a full request that closes session n and opens none

After 2147483647 comes 1. A broker without room for a session answers 0, and every request is full. After a lost answer
nobody knows what the broker remembers, so the next request is full and closes the session. One request at a time.
"""

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from headrace.client.types import TopicPartition
from headrace.protocol.errors import ErrorCode

NO_SESSION = 0
FULL_EPOCH = 0
CLOSING_EPOCH = -1
_LAST_EPOCH = 2**31 - 1


class Wanted(NamedTuple):
    """What to ask for of one partition."""

    topic_id: UUID | None
    fetch_offset: int
    #: The leader's epoch as the reader knows it, and that of the last record that it read; -1 if unknown.
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    max_bytes: int = 1 << 20


class SessionRequest(NamedTuple):
    session_id: int
    session_epoch: int
    partitions: dict[TopicPartition, Wanted]
    #: With the topic ids under which the broker knows them.
    forgotten: dict[TopicPartition, UUID | None]
    #: All that the answer may be about.
    asked: dict[TopicPartition, Wanted]

    @property
    def is_full(self) -> bool:
        return self.session_epoch in (FULL_EPOCH, CLOSING_EPOCH)


class FetchSession:
    """The session with one broker."""

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = FULL_EPOCH
        self._remembered: dict[TopicPartition, Wanted] = {}

    def next_request(self, wanted: Mapping[TopicPartition, Wanted]) -> SessionRequest:
        before, self._remembered = self._remembered, dict(wanted)
        if self.epoch == FULL_EPOCH:
            return SessionRequest(self.session_id, FULL_EPOCH, dict(wanted), {}, dict(wanted))
        forgotten = {
            partition: known.topic_id
            for partition, known in before.items()
            # A topic that was deleted and made again is another one under the same name.
            if partition not in wanted or wanted[partition].topic_id != known.topic_id
        }
        changed = {partition: new for partition, new in wanted.items() if before.get(partition) != new}
        return SessionRequest(self.session_id, self.epoch, changed, forgotten, dict(wanted))

    def closing_request(self) -> SessionRequest | None:
        """The last one, which makes the broker forget; none if there is nothing to forget."""
        if self.session_id == NO_SESSION:
            return None
        request = SessionRequest(self.session_id, CLOSING_EPOCH, {}, {}, {})
        self._restart(NO_SESSION)
        return request

    def answered(self, session_id: int, error: ErrorCode = ErrorCode.none) -> bool:
        """Takes note of an answer's head; whether its partitions count."""
        if error is not ErrorCode.none:
            self._restart(NO_SESSION if error is ErrorCode.fetch_session_id_not_found else self.session_id)
            return False
        if session_id == NO_SESSION:
            self._restart(NO_SESSION)
        elif self.epoch != FULL_EPOCH and session_id != self.session_id:
            # The answer belongs to no session of ours; ask in full.
            self._restart(self.session_id)
            return False
        else:
            self.session_id = session_id
            self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1
        return True

    def lost(self) -> None:
        """No answer came."""
        self._restart(self.session_id)

    def _restart(self, session_id: int) -> None:
        self.session_id, self.epoch = session_id, FULL_EPOCH
        self._remembered = {}
