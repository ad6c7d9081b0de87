"""Finds brokers that take no batches for a long time, so that the partitioner can avoid them."""


class SlowLeaders:
    """Remembers when each broker last took batches.

    A broker is slow if it had batches waiting for more than ``partitioner.availability.timeout.ms`` and took none. A
    timeout of 0 means that no broker is ever slow.
    """

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._ready_ms: dict[int, int] = {}
        self._drained_ms: dict[int, int] = {}

    def ready(self, node_id: int, now_ms: int, *, is_drained: bool) -> None:
        """Notes that batches were ready for a broker, and whether its connection took them (``is_drained``)."""
        self._ready_ms[node_id] = now_ms
        if is_drained or node_id not in self._drained_ms:
            self._drained_ms[node_id] = now_ms

    def is_slow(self, node_id: int) -> bool:
        if self._timeout_ms <= 0 or node_id not in self._ready_ms:
            return False
        return self._ready_ms[node_id] - self._drained_ms[node_id] > self._timeout_ms
