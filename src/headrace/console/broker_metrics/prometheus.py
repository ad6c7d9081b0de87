"""Asks a Prometheus for the metrics of brokers: two queries per reading, for values and for rates.

Rates are over two minutes, so a Prometheus that scrapes every minute has two values for each.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from headrace.console.broker_metrics.fetching import NoAnswer, fetch
from headrace.console.broker_metrics.measured import (
    BYTES_IN,
    BYTES_OUT,
    COUNTED_TWICE,
    GAUGES,
    REQUESTS,
    TIMES,
    TOTALS,
    Measured,
    Point,
    slowest,
    uses,
    versions,
)
from headrace.http_endpoints.access import Access
from headrace.runtime.clock import Clock

_RATE_OVER = "2m"
_MOST_SERIES = 20_000
_TOTAL = "headrace_total"


class Prometheus:
    """One Prometheus.

    :param labels: what the series must have, such as the job of the cluster.
    """

    def __init__(self, url: str, labels: Mapping[str, str], access: Access, clock: Clock) -> None:
        self._url = f"{url.rstrip('/')}/api/v1/query"
        self._access = access
        self._clock = clock
        self._values, self._rates = _queries(labels)

    async def read(self) -> Measured:
        now_ms = self._clock.wall_ms()
        try:
            values, rates = await asyncio.gather(self._ask(self._values), self._ask(self._rates))
        except NoAnswer as error:
            return Measured(now_ms, problems=(str(error),))
        totals: dict[str, float | None] = dict.fromkeys(TOTALS.values())
        totals |= {point.labels.get(_TOTAL, ""): point.value for point in rates}
        return Measured(now_ms, versions(values), {**totals, **slowest(values)}, uses(values))

    async def _ask(self, query: str) -> list[Point]:
        text = await fetch(self._url, self._access, urlencode({"query": query, "timeout": "3s"}))
        return await asyncio.to_thread(self._parse, text)

    def _parse(self, text: bytes) -> list[Point]:
        try:
            answer = json.loads(text)
            return _points(answer["data"]["result"])
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
            raise NoAnswer(f"{self._url} does not answer as a Prometheus does ({type(error).__name__})") from None


def _points(result: list[dict[str, Any]]) -> list[Point]:
    if len(result) > _MOST_SERIES:
        raise ValueError(f"more than {_MOST_SERIES} series")
    found = []
    for each in result:
        labels = {str(name): str(value) for name, value in each["metric"].items()}
        value = float(each["value"][1])
        if math.isfinite(value):
            found.append(Point(labels.pop("__name__", ""), labels, value))
    return found


def _queries(labels: Mapping[str, str]) -> tuple[str, str]:
    """The queries for values and for rates."""
    chosen = "".join(f",{name}={json.dumps(value, ensure_ascii=False)}" for name, value in labels.items())
    others = "|".join(name for name in GAUGES if name != TIMES)
    values = f'{{__name__=~"{others}"{chosen}}} or {TIMES}{{quantile="0.99"{chosen}}}'
    kinds = "|".join(COUNTED_TWICE)
    conditions = {REQUESTS: f'request!~"{kinds}"', BYTES_IN: 'topic=""', BYTES_OUT: 'topic=""'}
    rates = (
        f'label_replace(sum(rate({name}{{{condition}{chosen}}}[{_RATE_OVER}])), "{_TOTAL}", "{TOTALS[name]}", "", "")'
        for name, condition in conditions.items()
    )
    return values, " or ".join(rates)
