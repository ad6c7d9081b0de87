"""Runs the sessions of a mirror, one after another, until it is stopped, has finished, or cannot go on.

An error before the first session has started is raised at once: a broker that cannot be reached, or an invalid name.
After later errors the next session continues where the last transaction ended. An error that a new session cannot
repair ends the mirror: records that are too large, a missing permission, another mirror with the same name.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from headrace.client.errors import AuthenticationFailed, BrokerError, ErrorCode, HeadraceError, ProducerFenced
from headrace.client.mirror.options import MirrorError, MirrorEvents, MirrorOptions
from headrace.client.mirror.session import MirrorState, Session
from headrace.client.retry import Backoff

_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = 200, 5_000
#: Kafka does not call these errors retriable, but a new session has a new producer.
_REPAIRED_BY_NEW_PRODUCER = frozenset(
    {
        ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch, ErrorCode.invalid_producer_id_mapping,
        ErrorCode.unknown_producer_id, ErrorCode.invalid_txn_state, ErrorCode.out_of_order_sequence_number,
        ErrorCode.transaction_abortable, ErrorCode.concurrent_transactions, ErrorCode.unknown_server_error,
    }
)  # fmt: skip


class Mirror:
    """One mirror, over all its sessions."""

    def __init__(self, options: MirrorOptions, events: MirrorEvents | None = None) -> None:
        self._options = options
        self._events = events or MirrorEvents()
        self.state = MirrorState()
        #: Whether a session is open. Then a transaction may be open too.
        self.is_mirroring = False

    @property
    def has_caught_up(self) -> bool:
        """Whether a mirror with ``is_once`` has reached its goals."""
        return self.state.has_begun and not self.state.goals

    async def run(self, stopping: asyncio.Event) -> None:
        """Runs sessions until the mirror ends.

        :param stopping: set this event to end the mirror after the current round.
        :raises HeadraceError: if the mirror cannot start, or cannot go on.
        """
        backoff = Backoff(_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS)
        failures = 0
        while not stopping.is_set():
            records = self.state.records
            session = Session(self._options, self._events, self.state)
            try:
                async with session:
                    self.is_mirroring = True
                    await session.run(stopping)
                return
            except HeadraceError as error:
                self._raise_if_final(error, session)
                self._events.failed(error)
            finally:
                self.is_mirroring = False
            failures = failures + 1 if self.state.records == records else 1
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), backoff.delay_ms(failures) / 1000)

    def _raise_if_final(self, error: HeadraceError, session: Session) -> None:
        if not self.state.has_begun or isinstance(error, MirrorError):
            raise error
        if isinstance(error, ProducerFenced) and not session.is_round_overdue:
            raise MirrorError(f"another mirror with the name {self._options.name!r} has taken over") from error
        is_passing = not isinstance(error, AuthenticationFailed) and (
            not isinstance(error, BrokerError) or error.is_retriable or error.code in _REPAIRED_BY_NEW_PRODUCER
        )
        if not is_passing and self._options.ends_on_failure:
            raise error
