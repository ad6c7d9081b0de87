"""The interfaces between a membership and its consumer: ``GroupSubscription`` and ``Membership``.

A membership talks to the coordinator in the background. All that the user sees (partitions that are revoked or
assigned, and the callbacks for that) happens in :meth:`Membership.poll`, which the user's own ``poll()`` calls.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from headrace.client.retry import Deadline
from headrace.client.types import TopicPartition
from headrace.protocol.kio import ErrorCode


class MemberIdentity(NamedTuple):
    """The identity that a commit is sent with. The defaults stand for a consumer that is no member of the group."""

    member_id: str = ""
    generation: int = -1
    group_instance_id: str | None = None
    #: Whether the generation is a member epoch of KIP-848, which the coordinator raises at any time.
    is_epoch: bool = False


class GroupSubscription(Protocol):
    """The consumer's subscription, as a membership uses it."""

    def topics(self) -> frozenset[str]:
        """The topics that the consumer has subscribed to. A pattern that the consumer resolves is resolved here."""

    def pattern(self) -> str | None:
        """A pattern that the broker resolves (``group.protocol=consumer``)."""

    def assignment(self) -> set[TopicPartition]: ...

    async def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Returns the number of partitions per topic, from metadata that is refreshed if necessary."""

    async def before_rebalance(self) -> None:
        """Commits the consumed offsets, if ``enable.auto.commit`` is on."""

    async def revoke(self, partitions: set[TopicPartition]) -> None:
        """Calls the user's callback, then stops reading the partitions."""

    async def lose(self, partitions: set[TopicPartition]) -> None:
        """Does the same as :meth:`revoke` for partitions that other members may read already."""

    async def assign(self, partitions: set[TopicPartition]) -> None:
        """Reads exactly these partitions, then calls the user's callback with the new ones."""

    def notify(self) -> None:
        """Wakes a waiting ``poll()``."""


class Membership(Protocol):
    """A consumer's membership in its group, of either protocol."""

    def identity(self) -> MemberIdentity:
        """The identity for commits."""

    def commit_refused(self, code: ErrorCode) -> None:
        """The coordinator has refused a commit, because it does not know the member or its generation."""

    @property
    def is_due(self) -> bool:
        """Whether :meth:`poll` has anything to do. May be asked on any thread."""

    def subscription_changed(self) -> None: ...

    async def poll(self, deadline: Deadline) -> None:
        """Does what is due on the user's side. Waits for the coordinator until the deadline at most.

        :raises HeadraceError: if the group does not accept this member.
        """

    def poll_ended(self) -> None:
        """The user has the records. From now on the time until the next poll counts (``max.poll.interval.ms``).

        May be called on any thread.
        """

    async def leave(self) -> None:
        """Revokes all partitions and leaves the group. A static member stays in the group, for its successor."""
