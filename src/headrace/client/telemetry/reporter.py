"""Decides which telemetry request a client sends next, and when. No I/O; time is passed in.

::

    SUBSCRIPTION_NEEDED ─▶ SUBSCRIPTION_IN_PROGRESS ─▶ PUSH_NEEDED ◀─▶ PUSH_IN_PROGRESS
            ▲                        │ nothing is wanted, or an error        │ an error
            └────────────────────────┴──────────────────────────────────────┘
    close: PUSH_NEEDED and both in progress ─▶ TERMINATING_PUSH_NEEDED ─▶ TERMINATING_PUSH_IN_PROGRESS ─▶ TERMINATED

A client asks for its subscription as soon as it is connected. The first push comes after 50 % to 150 % of the interval,
so that clients that started together do not push together. If nothing is wanted, the client asks again after the
interval. A client that is closed pushes once more what happened since the last push.

Errors::

    UNKNOWN_SUBSCRIPTION_ID, UNSUPPORTED_COMPRESSION_TYPE    ask for the subscription again, at once
    TELEMETRY_TOO_LARGE, THROTTLING_QUOTA_EXCEEDED           ask for it again after the interval
    a lost connection, a timeout                             ask another broker after the interval
    a broker without the API                                 ask another broker after five minutes
    any other error                                          never again
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from logging import getLogger
from math import inf
from typing import Any
from uuid import UUID

from headrace.client.own_random import uniform
from headrace.client.telemetry.subscription import DEFAULT_PUSH_INTERVAL_MS, Subscription
from headrace.protocol.kio import ErrorCode

logger = getLogger(__name__)

#: The first push comes after this part of the interval.
_FIRST_PUSH = (0.5, 1.5)
_ASK_AGAIN_AT_ONCE = frozenset({ErrorCode.unknown_subscription_id, ErrorCode.unsupported_compression_type})
_ASK_AGAIN_LATER = frozenset({ErrorCode.telemetry_too_large, ErrorCode.throttling_quota_exceeded})
NO_ID = UUID(int=0)


class TelemetryState(Enum):
    SUBSCRIPTION_NEEDED = auto()
    SUBSCRIPTION_IN_PROGRESS = auto()
    PUSH_NEEDED = auto()
    PUSH_IN_PROGRESS = auto()
    TERMINATING_PUSH_NEEDED = auto()
    TERMINATING_PUSH_IN_PROGRESS = auto()
    TERMINATED = auto()


_S = TelemetryState
#: From each state, which states may follow.
NEXT: dict[TelemetryState, frozenset[TelemetryState]] = {
    _S.SUBSCRIPTION_NEEDED: frozenset({_S.SUBSCRIPTION_IN_PROGRESS, _S.TERMINATED}),
    _S.SUBSCRIPTION_IN_PROGRESS: frozenset(
        {_S.PUSH_NEEDED, _S.SUBSCRIPTION_NEEDED, _S.TERMINATING_PUSH_NEEDED, _S.TERMINATED}
    ),
    _S.PUSH_NEEDED: frozenset({_S.PUSH_IN_PROGRESS, _S.SUBSCRIPTION_NEEDED, _S.TERMINATING_PUSH_NEEDED, _S.TERMINATED}),
    _S.PUSH_IN_PROGRESS: frozenset({_S.PUSH_NEEDED, _S.SUBSCRIPTION_NEEDED, _S.TERMINATING_PUSH_NEEDED, _S.TERMINATED}),
    _S.TERMINATING_PUSH_NEEDED: frozenset({_S.TERMINATING_PUSH_IN_PROGRESS, _S.TERMINATED}),
    _S.TERMINATING_PUSH_IN_PROGRESS: frozenset({_S.TERMINATED}),
    _S.TERMINATED: frozenset(),
}
_IN_PROGRESS = {
    _S.SUBSCRIPTION_NEEDED: _S.SUBSCRIPTION_IN_PROGRESS,
    _S.PUSH_NEEDED: _S.PUSH_IN_PROGRESS,
    _S.TERMINATING_PUSH_NEEDED: _S.TERMINATING_PUSH_IN_PROGRESS,
}


class TelemetryReporter:
    """The state of one client's telemetry."""

    def __init__(self, *, jitter: Callable[[float, float], float] = uniform) -> None:
        """
        :param jitter: returns a number between two numbers.
        """
        self._jitter = jitter
        self.state = TelemetryState.SUBSCRIPTION_NEEDED
        #: The last subscription. It may want no metrics.
        self.subscription: Subscription | None = None
        self._next_request_ms = -inf

    @property
    def client_instance_id(self) -> UUID:
        """The id that a broker has given to this client; zero before the first answer."""
        return NO_ID if self.subscription is None else self.subscription.client_instance_id

    def _go_to(self, state: TelemetryState) -> None:
        assert state in NEXT[self.state], f"{self.state.name} is not followed by {state.name}"
        self.state = state

    def wait_ms(self, now_ms: float) -> float:
        """Returns the time until the next request; infinity if there is none."""
        if self.state is TelemetryState.TERMINATED:
            return inf
        return max(0.0, self._next_request_ms - now_ms)

    def begin_request(self) -> TelemetryState:
        """Notes that a request is sent, and returns which: a state in progress."""
        self._go_to(_IN_PROGRESS[self.state])
        return self.state

    # -- answers

    def subscribed(self, answer: Any, now_ms: float) -> None:
        """Handles an answer to GetTelemetrySubscriptions."""
        if answer.error_code is not ErrorCode.none:
            self._refused(answer.error_code, now_ms)
            return
        try:
            self.subscription = subscription = Subscription.of(answer)
        except ValueError as error:
            self.disable(str(error))
            return
        interval_ms: float = subscription.push_interval_ms
        if subscription.prefixes:
            self._go_to(TelemetryState.PUSH_NEEDED)
            interval_ms *= self._jitter(*_FIRST_PUSH)
        else:
            self._go_to(TelemetryState.SUBSCRIPTION_NEEDED)
        self._next_request_ms = now_ms + interval_ms

    def pushed(self, code: ErrorCode, now_ms: float) -> None:
        """Handles an answer to PushTelemetry."""
        if code is not ErrorCode.none:
            self._refused(code, now_ms)
            return
        self._go_to(TelemetryState.PUSH_NEEDED)
        self._next_request_ms = now_ms + self._interval_ms()

    def failed(self, now_ms: float, *, is_unsupported: bool = False) -> None:
        """Handles a request without an answer."""
        self._go_to(TelemetryState.SUBSCRIPTION_NEEDED)
        self._next_request_ms = now_ms + (DEFAULT_PUSH_INTERVAL_MS if is_unsupported else self._interval_ms())

    def _refused(self, code: ErrorCode, now_ms: float) -> None:
        logger.debug("the broker refused a telemetry request: %s", code.name)
        if code in _ASK_AGAIN_AT_ONCE:
            self._next_request_ms = now_ms
        elif code in _ASK_AGAIN_LATER:
            self._next_request_ms = now_ms + self._interval_ms()
        else:
            self.disable(f"the broker answered {code.name}")
            return
        self._go_to(TelemetryState.SUBSCRIPTION_NEEDED)

    def _interval_ms(self) -> int:
        return DEFAULT_PUSH_INTERVAL_MS if self.subscription is None else self.subscription.push_interval_ms

    # -- the end

    def begin_termination(self) -> bool:
        """The client is being closed. Returns whether it pushes once more."""
        wants_metrics = self.subscription is not None and bool(self.subscription.prefixes)
        if not wants_metrics or TelemetryState.TERMINATING_PUSH_NEEDED not in NEXT[self.state]:
            return False
        self._go_to(TelemetryState.TERMINATING_PUSH_NEEDED)
        return True

    def disable(self, reason: str) -> None:
        """Sends no requests any more."""
        logger.debug("this client pushes no metrics any more: %s", reason)
        self.end()

    def end(self) -> None:
        if self.state is not TelemetryState.TERMINATED:
            self._go_to(TelemetryState.TERMINATED)
