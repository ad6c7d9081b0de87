"""What a membership needs of its consumer, and both kinds of membership offer to it.

A membership talks to the coordinator in the background. What concerns the user (giving partitions up, taking new ones,
and the callbacks that go with it) happens in :meth:`Membership.poll`, that is within the user's own ``poll()``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from headrace.client.consumer.committed_offsets import Identified
from headrace.client.retry import Deadline
from headrace.client.types import TopicPartition


class GroupHost(Protocol):
    """The consumer, as a membership sees it."""

    def topics(self) -> frozenset[str]:
        """What it has subscribed to, patterns resolved."""

    def pattern(self) -> str | None:
        """A pattern that the broker resolves (``group.protocol=consumer``)."""

    def assignment(self) -> set[TopicPartition]: ...

    async def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Of those that exist; asked for, where it is not known."""

    async def before_rebalance(self) -> None:
        """Commits what was handed out, if that is done automatically."""

    async def revoke(self, partitions: set[TopicPartition]) -> None:
        """Tells the user, then stops reading them."""

    async def lose(self, partitions: set[TopicPartition]) -> None:
        """As :meth:`revoke`, but others may read them already."""

    async def assign(self, partitions: set[TopicPartition]) -> None:
        """Reads these and no others, then tells the user which of them are new."""

    def notify(self) -> None:
        """Wakes who waits in poll."""


class Membership(Identified, Protocol):
    @property
    def is_due(self) -> bool:
        """Whether :meth:`poll` has anything to do. May be asked on any thread."""

    def polled(self) -> None:
        """The user came for records, and :meth:`poll` had nothing to do. On any thread."""

    def subscription_changed(self) -> None: ...

    async def poll(self, deadline: Deadline) -> None:
        """Does what is due on the user's side. Waits for the coordinator until the deadline at most.

        :raises HeadraceError: if the group will not have this member.
        """

    def poll_ended(self) -> None:
        """The user has the records now; the time to the next poll counts."""

    async def leave(self) -> None:
        """Gives everything up and leaves; a static member stays in the group, for its successor."""
