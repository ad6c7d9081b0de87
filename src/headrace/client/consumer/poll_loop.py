"""The loop of ``poll()``: it waits for records, and meanwhile does all that the user must see."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from headrace.client.consumer.assigned_partitions import CHECK_INTERVAL_MS
from headrace.client.consumer.committer import Committer
from headrace.client.consumer.consumer_metrics import ConsumerMetrics
from headrace.client.consumer.fetcher import Fetcher
from headrace.client.consumer.subscription import Subscription
from headrace.client.errors import ClientClosed, HeadraceError
from headrace.client.membership.interfaces import Membership
from headrace.client.notifier import Notifier
from headrace.client.retry import Deadline
from headrace.runtime.clock import Clock

T = TypeVar("T")


class PollLoop:
    """Polls for one task at a time."""

    def __init__(
        self,
        clock: Clock,
        subscription: Subscription,
        committer: Committer,
        fetcher: Fetcher,
        notifier: Notifier,
        metrics: ConsumerMetrics,
    ) -> None:
        self._clock = clock
        self._subscription = subscription
        self._committer = committer
        self._fetcher = fetcher
        self._notifier = notifier
        self._metrics = metrics
        self._is_polling = False
        self.is_closed = False
        #: The consumer's membership in its group, while it has subscribed to topics.
        self.membership: Membership | None = None

    def close(self) -> None:
        """Makes a waiting poll raise :class:`ClientClosed`."""
        self.is_closed = True
        self._notifier.notify()

    def raise_if_closed(self) -> None:
        if self.is_closed:
            raise ClientClosed("the consumer is closed")

    async def leave_group(self) -> None:
        """Commits automatically, revokes all partitions and leaves the group, if the consumer is a member."""
        membership, self.membership = self.membership, None
        if membership is not None:
            await self._committer.commit_before_rebalance()
            try:
                await membership.leave()
            finally:
                self._committer.offsets.membership = None

    async def poll(self, timeout_ms: float, take: Callable[[], list[T]]) -> list[T]:
        """Calls ``take`` until it returns something, or until the timeout.

        Each turn refreshes metadata, does what is due in the group, and commits automatically.
        """
        if self._is_polling:
            raise HeadraceError("another task is in poll() already; use one consumer per task")
        self._is_polling = True
        self._metrics.poll_began()
        deadline = Deadline(self._clock, timeout_ms)
        try:
            while True:
                if self._subscription.must_refresh():
                    self._fetcher.refresh()
                if self.membership is not None:
                    await self.membership.poll(deadline)
                    self.raise_if_closed()
                self._committer.commit_if_due()
                taken = take()
                if taken:
                    self._fetcher.wake()
                    return taken
                self._fetcher.raise_error()
                if deadline.has_passed():
                    return taken
                self._fetcher.wake()
                await self._notifier.wait(min(CHECK_INTERVAL_MS, deadline.left_ms()))
                self.raise_if_closed()
        finally:
            self._is_polling = False
            self._metrics.poll_ended()
            if self.membership is not None:
                self.membership.poll_ended()

    def begin_shortcut(self) -> bool:
        """Whether records may be taken without a turn of the loop, because nothing else is due. On any thread."""
        if self.is_closed or not self._fetcher.is_started or self._fetcher.has_error or self._is_polling:
            return False
        if self._committer.is_due:
            return False
        if self.membership is not None:
            if self.membership.is_due or self._subscription.must_refresh():
                return False
            self.membership.poll_ended()
        self._metrics.poll_began()
        self._metrics.poll_ended()
        return True
