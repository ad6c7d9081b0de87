"""Reads the metrics endpoints of brokers, in Prometheus' text format. Rates are the growth since the reading before."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Sequence

from headrace.console.broker_metrics.fetching import NoAnswer, fetch
from headrace.console.broker_metrics.measured import (
    COUNTERS,
    GAUGES,
    TOTALS,
    Measured,
    Point,
    slowest,
    sums,
    uses,
    versions,
)
from headrace.http_endpoints.access import Access
from headrace.runtime.clock import Clock

_MOST_SERIES = 20_000
#: The lines that count. A broker with many partitions has 100 times as many others, which are not parsed.
_LINES = re.compile(rb"^(?:%s)[{ ].*$" % b"|".join(name.encode() for name in (*GAUGES, *COUNTERS)), re.MULTILINE)


class Endpoints:
    """The metrics endpoints of some brokers."""

    def __init__(self, urls: Sequence[str], access: Access, clock: Clock) -> None:
        self._urls = tuple(urls)
        self._access = access
        self._clock = clock
        self._before: dict[str, tuple[float, dict[str, float]]] = {}

    async def read(self) -> Measured:
        answers = await asyncio.gather(*map(self._read, self._urls))
        points = [point for found, _, _ in answers for point in found]
        rates = [found for _, found, _ in answers if found is not None]
        # A broker that does not answer would make a sum too small.
        is_whole = len(rates) == len(self._urls)
        totals = {name: sum(each.get(name, 0.0) for each in rates) if is_whole else None for name in TOTALS.values()}
        problems = tuple(problem for _, _, problem in answers if problem)
        return Measured(self._clock.wall_ms(), versions(points), {**totals, **slowest(points)}, uses(points), problems)

    async def _read(self, url: str) -> tuple[list[Point], dict[str, float] | None, str]:
        """The series of a broker, how fast its sums grow (None at the first reading), and why there are none."""
        try:
            points = await asyncio.to_thread(parse, url, await fetch(url, self._access))
        except NoAnswer as error:
            self._before.pop(url, None)
            return [], None, str(error)
        now_ms, found = self._clock.monotonic_ms(), sums(points)
        before = self._before.get(url)
        self._before[url] = now_ms, found
        if before is None or now_ms <= before[0]:
            return points, None, ""
        seconds = (now_ms - before[0]) / 1_000
        # After a restart of the broker its counters begin anew.
        grown = {
            name: (value - was if value >= (was := before[1].get(name, 0.0)) else value)
            for name, value in found.items()
        }
        return points, {name: value / seconds for name, value in grown.items()}, ""


def parse(url: str, text: bytes) -> list[Point]:
    """
    :raises NoAnswer: if the text is not in Prometheus' format.
    """
    from prometheus_client.parser import text_string_to_metric_families

    lines: list[str] = []
    for line in _LINES.finditer(text):
        if len(lines) >= _MOST_SERIES:
            raise NoAnswer(f"{url} has more than {_MOST_SERIES} series of quotas and requests")
        lines.append(line[0].decode("utf-8", errors="replace"))
    try:
        families = text_string_to_metric_families("\n".join(lines) + "\n")
        points = [Point(each.name, each.labels, float(each.value)) for family in families for each in family.samples]
    except Exception as error:  # noqa: BLE001  the parser fails in many ways on a text that is not in the format
        raise NoAnswer(f"{url} does not answer in Prometheus' text format: {str(error)[:200]}") from None
    return [point for point in points if math.isfinite(point.value)]
