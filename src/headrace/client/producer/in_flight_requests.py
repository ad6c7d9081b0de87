"""Counts the Produce requests that one broker has not answered yet."""


class InFlightRequests:
    """The unanswered requests of one broker. ``is_full``: the broker gets no more requests now."""

    __slots__ = ("_max", "count", "is_full")

    def __init__(self, max_in_flight: int) -> None:
        self.count = 0
        self._max = max_in_flight
        self.is_full = False

    def sent(self) -> None:
        self.count += 1
        self.is_full = self.count >= self._max

    def answered(self) -> None:
        self.count -= 1
        self.is_full = False
