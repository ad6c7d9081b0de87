"""A clock that shows the same time until a test advances it."""


class ManualClock:
    """Implements ``runtime.clock.Clock``. A broker on it is moved by :func:`headrace.testing.pass_time`."""

    def __init__(self, wall_ms: int = 1_700_000_000_000, monotonic_ms: int = 0) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def monotonic_ns(self) -> int:
        return self._monotonic_ms * 1_000_000

    def advance(self, by_ms: int) -> None:
        self._wall_ms += by_ms
        self._monotonic_ms += by_ms
