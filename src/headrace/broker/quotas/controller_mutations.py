"""Limits how many partitions a client creates and deletes per second (KIP-599).

A topic costs as many tokens as it has partitions, whether it is created or deleted. A request may take more tokens than
there are, but only while there is no debt. What happens to a client with a debt depends on the version of its request:

=======================  ============================================================================================
the client knows         Each topic fails with THROTTLING_QUOTA_EXCEEDED until the debt is paid. The topics of one
the error                request are created or deleted in order, so the first of them may succeed.
the client is older      Each topic is created or deleted, and the connection is muted until the debt is paid.
=======================  ============================================================================================

CreateTopics, DeleteTopics and CreatePartitions pass a :class:`MutationQuota` on. Topics that Metadata creates take
tokens, too, and never fail for that. Each broker counts for itself. Clients send these requests to the controller, so
that normally one broker counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.quotas.client_rates import MAX_RATES, UNUSED_MS, ClientTokens, mutation_tokens
from headrace.broker.quotas.entities import CONTROLLER_MUTATION_RATE
from headrace.protocol.errors import ThrottlingQuotaExceeded

if TYPE_CHECKING:
    from headrace.broker.network.request import Request
    from headrace.broker.quotas.client_quotas import ClientQuotas
    from headrace.broker.quotas.rates import Windows
    from headrace.runtime.clock import Clock


class MutationQuota:
    """The quota of one request. Without tokens nothing is limited."""

    __slots__ = ("_clock", "_is_strict", "_tokens", "_until_ms")

    def __init__(self, tokens: ClientTokens | None, clock: Clock, *, is_strict: bool) -> None:
        self._tokens = tokens
        self._clock = clock
        self._is_strict = is_strict
        #: Until when the client has to wait.
        self._until_ms = 0

    def __bool__(self) -> bool:
        """Whether there is a limit."""
        return self._tokens is not None

    def take(self, partitions: int) -> None:
        """
        :raises ThrottlingQuotaExceeded: if the client has to wait first.
        """
        if self._tokens is None:
            return
        now_ms = self._clock.monotonic_ms()
        if not self._is_strict:
            self._tokens.take(partitions, now_ms)
        throttle_ms = self._tokens.bucket.throttle_ms(now_ms)
        if throttle_ms:
            self._until_ms = now_ms + throttle_ms
            if self._is_strict:
                raise ThrottlingQuotaExceeded("The throttling quota has been exceeded.")
        elif self._is_strict:
            self._tokens.take(partitions, now_ms)

    def throttle(self, request: Request) -> None:
        """Mutes the connection of the request for the time that is left, once the request is answered."""
        now_ms = self._clock.monotonic_ms()
        if self._tokens is not None and self._until_ms > now_ms:
            request.throttle(self._until_ms - now_ms, self._tokens, now_ms)


class ControllerMutations:
    """Counts the partitions that clients have created and deleted."""

    def __init__(self, quotas: ClientQuotas, clock: Clock, windows: Windows) -> None:
        self._quotas = quotas
        self._clock = clock
        self._unlimited = MutationQuota(None, clock, is_strict=True)
        self.tokens = mutation_tokens("ControllerMutation", windows)
        self._forgets_ms = 0

    def quota_of(self, request: Request, *, strict_since: int) -> MutationQuota:
        """
        :param strict_since: the first version whose clients know THROTTLING_QUOTA_EXCEEDED.
        """
        if not self._quotas.tables[CONTROLLER_MUTATION_RATE].any:
            return self._unlimited
        user, client_id = request.connection.principal.name, request.client_id or ""
        limit = self._quotas.limit(CONTROLLER_MUTATION_RATE, user, client_id)
        if limit is None:
            return self._unlimited
        now_ms = self._clock.monotonic_ms()
        if len(self.tokens) >= MAX_RATES or now_ms >= self._forgets_ms:
            self.tokens.forget(now_ms)
            self._forgets_ms = now_ms + UNUSED_MS // 12
        return MutationQuota(self.tokens.of(limit, now_ms), self._clock, is_strict=request.version >= strict_since)
