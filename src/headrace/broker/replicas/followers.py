"""The interface through which Produce and Fetch serve followers.

``FollowerSessions`` (``follower_sessions.py``) implements the interface for a member of a cluster. A lone broker has no
followers: :class:`NoFollowers`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.broker.network.request import Reply, Request


class Followers(ABC):
    #: Whether the leader may send consumers to a nearer replica (KIP-392).
    has_replica_selector: bool

    @abstractmethod
    def includes(self, replica_id: int) -> bool:
        """Whether a Fetch with this replica id comes from a follower."""

    @abstractmethod
    async def fetch(self, request: Request, replica_id: int) -> Reply:
        """Answers the Fetch of a follower."""

    @abstractmethod
    def serve_woken(self) -> None:
        """Answers the waiting fetches of followers that have new records to read."""


class NoFollowers(Followers):
    """A lone broker has no followers. The handler of Fetch refuses requests with a replica id."""

    has_replica_selector = False

    def includes(self, replica_id: int) -> bool:  # noqa: ARG002  as in Followers
        return False

    async def fetch(self, request: Request, replica_id: int) -> Reply:
        raise AssertionError(f"replica {replica_id} cannot follow a lone broker ({request.api.label})")

    def serve_woken(self) -> None:
        pass
