"""Measures how fast versions read, over the last ten seconds in which a page was open."""

from __future__ import annotations

from collections import deque

_OVER_S = 10.0


class Rates:
    """The numbers of records that versions had read, with their times."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[float, int]]] = {}

    def of(self, label: str, done: int | None, now_s: float) -> float | None:
        """Records per second; None if there is only one sample."""
        if done is None:
            return None
        seen = self._seen.setdefault(label, deque())
        seen.append((now_s, done))
        while seen[-1][0] - seen[0][0] > _OVER_S and len(seen) > 2:
            seen.popleft()
        (first_s, first), (last_s, last) = seen[0], seen[-1]
        return max(0.0, (last - first) / (last_s - first_s)) if last_s > first_s else None

    def keep(self, labels: set[str]) -> None:
        """Forgets all other versions."""
        self._seen = {label: seen for label, seen in self._seen.items() if label in labels}
