"""A fetch session (KIP-227): the broker remembers the partitions of a reader, and the reader sends only changes.

::

    session id, epoch    means
    0, 0                 a full request that opens a session
    n, 0                 a full request that closes session n and opens another
    n, 1 2 3 ...         an incremental request: partitions that are new or have changed, and those to forget
    n, -1                a full request that closes session n and opens none

The epoch after 2147483647 is 1. A broker without room for a session answers with session id 0; then all requests are
full. After a lost answer the reader does not know what the broker remembers. So the next request is full, and closes
the session. A session has one request at a time.
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


class PartitionFetch(NamedTuple):
    """The part of a Fetch request for one partition."""

    topic_id: UUID | None
    fetch_offset: int
    #: The epoch of the current leader, and of the last record that was read; -1 if unknown.
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    max_bytes: int = 1 << 20


class SessionRequest(NamedTuple):
    """A request of a fetch session."""

    session_id: int
    session_epoch: int
    partitions: dict[TopicPartition, PartitionFetch]
    #: The partitions that the broker must forget, with the topic ids under which it knows them.
    forgotten: dict[TopicPartition, UUID | None]
    #: All partitions that the answer may contain.
    asked: dict[TopicPartition, PartitionFetch]

    @property
    def is_full(self) -> bool:
        return self.session_epoch in (FULL_EPOCH, CLOSING_EPOCH)


class FetchSession:
    """The session with one broker."""

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = FULL_EPOCH
        self._remembered: dict[TopicPartition, PartitionFetch] = {}

    def next_request(self, fetches: Mapping[TopicPartition, PartitionFetch]) -> SessionRequest:
        before, self._remembered = self._remembered, dict(fetches)
        if self.epoch == FULL_EPOCH:
            return SessionRequest(self.session_id, FULL_EPOCH, dict(fetches), {}, dict(fetches))
        forgotten = {
            partition: known.topic_id
            for partition, known in before.items()
            # A topic that was deleted and created again is another topic with the same name.
            if partition not in fetches or fetches[partition].topic_id != known.topic_id
        }
        changed = {partition: new for partition, new in fetches.items() if before.get(partition) != new}
        return SessionRequest(self.session_id, self.epoch, changed, forgotten, dict(fetches))

    def closing_request(self) -> SessionRequest | None:
        """Returns the last request, which closes the session; None if there is no session."""
        if self.session_id == NO_SESSION:
            return None
        request = SessionRequest(self.session_id, CLOSING_EPOCH, {}, {}, {})
        self._restart(NO_SESSION)
        return request

    def answered(self, session_id: int, error: ErrorCode = ErrorCode.none) -> bool:
        """Handles the head of an answer. Returns whether the partitions of the answer count."""
        if error is not ErrorCode.none:
            self._restart(NO_SESSION if error is ErrorCode.fetch_session_id_not_found else self.session_id)
            return False
        if session_id == NO_SESSION:
            self._restart(NO_SESSION)
        elif self.epoch != FULL_EPOCH and session_id != self.session_id:
            # The answer belongs to another session, so the next request is full.
            self._restart(self.session_id)
            return False
        else:
            self.session_id = session_id
            self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1
        return True

    def lost(self) -> None:
        """Handles a request without an answer."""
        self._restart(self.session_id)

    def _restart(self, session_id: int) -> None:
        self.session_id, self.epoch = session_id, FULL_EPOCH
        self._remembered = {}
