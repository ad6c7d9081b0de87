"""Keeps a mirror going: one session after another, until it is stopped, has done what it should, or cannot go on.

What fails before the first session has begun is told at once: a broker that is not there, or a name that is none. Later
on, failures pass, and the next session goes on where the last transaction ended. What trying again does not mend ends
the mirror: records that are too large, a refused permission, another mirror of the same name.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from headrace.client.errors import BrokerError, ErrorCode, HeadraceError, ProducerFenced
from headrace.client.mirror.options import MirrorError, MirrorEvents, MirrorOptions
from headrace.client.mirror.session import MirrorState, Session
from headrace.client.retry import Backoff

_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = 200, 5_000
#: Kafka does not count them as passing, but a new session has a new producer.
_MENDED_BY_INIT = frozenset(
    {
        ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch, ErrorCode.invalid_producer_id_mapping,
        ErrorCode.unknown_producer_id, ErrorCode.invalid_txn_state, ErrorCode.out_of_order_sequence_number,
        ErrorCode.transaction_abortable, ErrorCode.concurrent_transactions, ErrorCode.unknown_server_error,
    }
)  # fmt: skip


class Mirror:
    def __init__(self, options: MirrorOptions, events: MirrorEvents | None = None) -> None:
        self._options = options
        self._events = events or MirrorEvents()
        self.state = MirrorState()
        #: Whether a session is open: then there may be a transaction to be finished.
        self.is_mirroring = False

    @property
    def has_caught_up(self) -> bool:
        """With ``is_once``: whether it is done."""
        return self.state.has_begun and not self.state.goals

    async def run(self, stopping: asyncio.Event) -> None:
        """
        :param stopping: set it to end the mirror after the round that it is in.
        :raises HeadraceError: if it cannot begin, or cannot go on.
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
                self._raise_if_hopeless(error, session)
                self._events.failed(error)
            finally:
                self.is_mirroring = False
            failures = failures + 1 if self.state.records == records else 1
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), backoff.delay_ms(failures) / 1000)

    def _raise_if_hopeless(self, error: HeadraceError, session: Session) -> None:
        if not self.state.has_begun or isinstance(error, MirrorError):
            raise error
        if isinstance(error, ProducerFenced) and not session.is_round_overdue:
            raise MirrorError(f"another mirror of the name {self._options.name!r} has taken over") from error
        is_passing = not isinstance(error, BrokerError) or error.is_retriable or error.code in _MENDED_BY_INIT
        if not is_passing and self._options.ends_on_failure:
            raise error
