"""Counts that the parts of a cluster's member keep for metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class QueueMeter(NamedTuple):
    """The counts of the controller's requests to one broker."""

    size: int
    sent: int
    #: How long the sent requests have waited, in total.
    waited_ms: float


@dataclass(slots=True)
class SessionCounts:
    """How often the state of the session with ZooKeeper has changed since the start."""

    disconnects: int = 0
    expires: int = 0
    connects: int = 0
