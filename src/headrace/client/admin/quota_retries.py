"""Sends requests about topics again that the controller refuses for the quota ``controller_mutation_rate`` (KIP-599).

The controller refuses single topics of a request with THROTTLING_QUOTA_EXCEEDED, and says when to try again. Only those
topics are sent again, after that time. If the time is longer than what is left of the call's timeout, the call ends at
once: an attempt before that time would be refused too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

from headrace.client.admin.requests import AdminRequests
from headrace.client.errors import HeadraceError, QuotaExceeded
from headrace.client.retry import Deadline

K = TypeVar("K")
V = TypeVar("V")

#: Asks for some of the topics, within a number of milliseconds. Returns the answer, and the results in it.
AskForTopics = Callable[[list[K], float], Awaitable[tuple[Any, Mapping[K, V | HeadraceError]]]]


async def ask_within_quota(
    requests: AdminRequests, topics: Iterable[K], ask: AskForTopics[K, V], deadline: Deadline, *, retries: bool
) -> dict[K, V | HeadraceError]:
    """Returns the result of each topic.

    :param retries: False returns :class:`QuotaExceeded` as the result of a refused topic, without another attempt.
    """
    answer, found = await ask(list(topics), deadline.left_ms())
    results = dict(found)
    attempts = 0
    while True:
        refused = [topic for topic, result in results.items() if isinstance(result, QuotaExceeded)]
        if not refused:
            return results
        throttle_ms = answer.throttle_time.total_seconds() * 1000
        for topic in refused:
            error = results[topic]
            assert isinstance(error, QuotaExceeded)
            error.throttle_time_ms = round(throttle_ms)
        attempts += 1
        delay_ms = max(throttle_ms, requests.backoff.delay_ms(attempts))
        if not retries or delay_ms >= deadline.left_ms():
            return results
        await requests.cluster.pause(delay_ms, deadline)
        try:
            answer, found = await ask(refused, deadline.left_ms())
        except HeadraceError:
            return results  # The other topics have results already. The refused ones keep the reason for the delay.
        results.update(found)
