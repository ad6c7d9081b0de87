"""The statistics of the perf tests, and their lines in the words of Kafka's tools. No clock and no I/O.

A latency has a weight: the broker answers a batch as a whole, so all records of the batch get the latency of its first
record. (Later records waited less for the batch to fill; the statistics ignore that.) Percentiles are exact up to
``_MAX_SAMPLES`` batches. Beyond that, every second sample is dropped, and only every second new sample is kept.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

_MB = 1024.0 * 1024.0
_MAX_SAMPLES = 500_000
PERCENTILES = (0.5, 0.95, 0.99, 0.999)


class Latencies:
    """Latencies in ms, each with a number of records."""

    def __init__(self, max_samples: int = _MAX_SAMPLES) -> None:
        self.record_count = 0
        self.total_bytes = 0
        self.max_ms = 0.0
        self._total_ms = 0.0
        self._max_samples = max_samples
        self._every = 1
        self._seen = 0
        self._latencies_ms = array("d")
        self._weights = array("q")

    def add(self, latency_ms: float, record_count: int, size_bytes: int) -> None:
        self.record_count += record_count
        self.total_bytes += size_bytes
        self._total_ms += latency_ms * record_count
        self.max_ms = max(self.max_ms, latency_ms)
        self._seen += 1
        if self._seen % self._every:
            return
        self._latencies_ms.append(latency_ms)
        self._weights.append(record_count)
        if len(self._weights) >= self._max_samples:
            self._latencies_ms, self._weights = self._latencies_ms[::2], self._weights[::2]
            self._every *= 2

    @property
    def average_ms(self) -> float:
        return self._total_ms / self.record_count if self.record_count else 0.0

    def percentiles_ms(self, wanted: Sequence[float] = PERCENTILES) -> list[float]:
        """For each share, the latency that this share of the records did not exceed."""
        found: list[float] = []
        ordered = sorted(zip(self._latencies_ms, self._weights, strict=True))
        total = sum(self._weights)
        passed, at = 0, -1
        for share in sorted(wanted):
            while at + 1 < len(ordered) and (at < 0 or passed < share * total):
                at += 1
                passed += ordered[at][1]
            found.append(ordered[at][0] if ordered else 0.0)
        return found


class ProducerReport:
    """The lines of producer-perf-test."""

    @staticmethod
    def window(window: Latencies, elapsed_s: float) -> str:
        rate, mb_rate = _rates(window.record_count, window.total_bytes, elapsed_s)
        return (
            f"{window.record_count} records sent, {rate:.1f} records/sec ({mb_rate:.2f} MB/sec), "
            f"{window.average_ms:.1f} ms avg latency, {window.max_ms:.1f} ms max latency."
        )

    @staticmethod
    def total(total: Latencies, elapsed_s: float, what: str = "records") -> str:
        rate, mb_rate = _rates(total.record_count, total.total_bytes, elapsed_s)
        at = [f"{latency_ms:.0f} ms" for latency_ms in total.percentiles_ms()]
        return (
            f"{total.record_count} {what} sent, {rate:.6f} records/sec ({mb_rate:.2f} MB/sec), "
            f"{total.average_ms:.2f} ms avg latency, {total.max_ms:.2f} ms max latency, "
            f"{at[0]} 50th, {at[1]} 95th, {at[2]} 99th, {at[3]} 99.9th."
        )

    @staticmethod
    def as_json(total: Latencies, elapsed_s: float) -> dict[str, object]:
        rate, mb_rate = _rates(total.record_count, total.total_bytes, elapsed_s)
        names = ("50th", "95th", "99th", "99.9th")
        return {
            "records": total.record_count,
            "records.sec": round(rate, 3),
            "MB.sec": round(mb_rate, 4),
            "latency.avg.ms": round(total.average_ms, 3),
            "latency.max.ms": round(total.max_ms, 3),
            **{
                f"latency.{name}.ms": round(latency_ms, 3)
                for name, latency_ms in zip(names, total.percentiles_ms(), strict=True)
            },
        }


class ConsumerTotals:
    """The records and bytes that were consumed up to a moment."""

    __slots__ = ("rebalance_ms", "record_count", "total_bytes")

    def __init__(self) -> None:
        self.record_count = 0
        self.total_bytes = 0
        self.rebalance_ms = 0.0

    def copy(self) -> ConsumerTotals:
        other = ConsumerTotals()
        other.record_count, other.total_bytes = self.record_count, self.total_bytes
        other.rebalance_ms = self.rebalance_ms
        return other


_COLUMNS = (
    "data.consumed.in.MB", "MB.sec", "data.consumed.in.nMsg", "nMsg.sec", "rebalance.time.ms", "fetch.time.ms",
    "fetch.MB.sec", "fetch.nMsg.sec",
)  # fmt: skip


class ConsumerReport:
    """The lines of consumer-perf-test: one line in total, or one line per interval."""

    HEADER = ("start.time", "end.time", *_COLUMNS)
    DETAILED_HEADER = ("time", "threadId", *_COLUMNS)

    @staticmethod
    def numbers(now: ConsumerTotals, before: ConsumerTotals, elapsed_ms: float) -> dict[str, float | int]:
        """The columns after the times. Amounts are totals; rates and times refer to the records since ``before``."""
        rebalance_ms = min(now.rebalance_ms - before.rebalance_ms, elapsed_ms)
        fetch_ms = elapsed_ms - rebalance_ms
        records, mb = now.record_count - before.record_count, (now.total_bytes - before.total_bytes) / _MB
        values = (
            now.total_bytes / _MB, _per_s(mb, elapsed_ms), now.record_count, _per_s(records, elapsed_ms),
            round(rebalance_ms), round(fetch_ms), _per_s(mb, fetch_ms), _per_s(records, fetch_ms),
        )  # fmt: skip
        return dict(zip(_COLUMNS, values, strict=True))

    @staticmethod
    def line(times: Sequence[object], numbers: dict[str, float | int]) -> str:
        shown = [f"{value:.4f}" if isinstance(value, float) else str(value) for value in numbers.values()]
        return ", ".join([*map(str, times), *shown])


def _per_s(amount: float, elapsed_ms: float) -> float:
    return amount * 1000.0 / elapsed_ms if elapsed_ms > 0 else 0.0


def _rates(record_count: int, size_bytes: int, elapsed_s: float) -> tuple[float, float]:
    if elapsed_s <= 0:
        return 0.0, 0.0
    return record_count / elapsed_s, size_bytes / elapsed_s / _MB
