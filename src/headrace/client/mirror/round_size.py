"""Decides how many bytes one round of a mirror may have. No I/O.

A round is one transaction, and the coordinator aborts a transaction that lasts too long. A target that throttles the
mirror (a quota), or a slow network, may need minutes for a round that was collected within a second. Then the round
would fail, and so would the same round in the next session. So a round that took too long, or failed after a long time,
makes the following rounds smaller. Rounds grow again when the target is fast.
"""

from __future__ import annotations

_MIN_BYTES, MAX_BYTES = 64 << 10, 64 << 20
#: The part of the transaction's timeout that a round may take.
_PART_OF_TIMEOUT = 0.25
_GROWS_BELOW = 0.25


class RoundSize:
    """The size of the next round of one mirror."""

    def __init__(self) -> None:
        self.max_bytes = MAX_BYTES

    def committed(self, size_bytes: int, took_ms: float, timeout_ms: float) -> None:
        """A round was committed."""
        budget_ms = timeout_ms * _PART_OF_TIMEOUT
        if took_ms > budget_ms:
            self._set(size_bytes * budget_ms / took_ms)
        elif took_ms < budget_ms * _GROWS_BELOW and size_bytes >= self.max_bytes:
            self._set(self.max_bytes * 2)

    def failed(self, took_ms: float, timeout_ms: float) -> None:
        """A round failed. If it lasted long, it was probably too large."""
        if took_ms > timeout_ms * _PART_OF_TIMEOUT:
            self._set(self.max_bytes / 8)

    def _set(self, size_bytes: float) -> None:
        self.max_bytes = int(min(MAX_BYTES, max(_MIN_BYTES, size_bytes)))
