"""Counts what the console does, and writes the counts for Prometheus at ``/metrics``.

Labels are paths of the registry, such as ``/topics/{topic}``, and names of actions. No name of the cluster is in them,
so a scraper needs no login. ``FAMILIES`` is the table of the metrics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

_PREFIX = "headrace_console_"


@dataclass
class ConsoleCounts:
    """The counts since the console began.

    :ivar requests: by path and status.
    :ivar seconds: the time until the answer began, by path.
    :ivar changes: by action and outcome, ``done`` or ``failed``.
    """

    requests: Counter[tuple[str, str]] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)
    changes: Counter[tuple[str, str]] = field(default_factory=Counter)

    def request(self, path: str, status: int, seconds: float) -> None:
        self.requests[path, str(status)] += 1
        self.seconds[path] = self.seconds.get(path, 0.0) + seconds

    def change(self, action: str, *, is_done: bool) -> None:
        self.changes[action, "done" if is_done else "failed"] += 1


@dataclass(frozen=True)
class ConsoleValues:
    """The counts, and what there is now.

    :ivar sample_age_seconds: None if there is no sample.
    """

    counts: ConsoleCounts
    sessions: int
    live_pages: int
    searches: int
    sample_age_seconds: float | None


Values = Iterator[tuple[tuple[str, ...], float]]


class Family(NamedTuple):
    """
    :param name: without the prefix.
    :param values: the values with the values of the labels.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str
    values: Callable[[ConsoleValues], Values]


def _each(counts: Callable[[ConsoleCounts], Counter[tuple[str, str]]]) -> Callable[[ConsoleValues], Values]:
    return lambda values: iter(sorted(counts(values.counts).items()))


def _one(value: Callable[[ConsoleValues], float | None]) -> Callable[[ConsoleValues], Values]:
    return lambda values: iter([] if (found := value(values)) is None else [((), found)])


FAMILIES = (
    Family(
        "requests_total", "counter", ("path", "status"), "Requests of pages, actions and their JSON.",
        _each(lambda counts: counts.requests),
    ),
    Family(
        "request_seconds_total", "counter", ("path",), "Time until these requests had an answer.",
        lambda values: iter([((path,), seconds) for path, seconds in sorted(values.counts.seconds.items())]),
    ),
    Family(
        "changes_total", "counter", ("action", "outcome"), "Changes that were asked for, done or failed.",
        _each(lambda counts: counts.changes),
    ),
    Family("sessions", "gauge", (), "Visitors whose session has not ended.", _one(lambda values: values.sessions)),
    Family("live_pages", "gauge", (), "Open pages that change by themselves.", _one(lambda values: values.live_pages)),
    Family("searches", "gauge", (), "Searches that are running.", _one(lambda values: values.searches)),
    Family(
        "sample_age_seconds", "gauge", (), "Time since the last sample of the cluster; missing without one.",
        _one(lambda values: values.sample_age_seconds),
    ),
)  # fmt: skip


def metrics_text(values: ConsoleValues) -> str:
    """Prometheus' text format."""
    return "".join(line + "\n" for family in FAMILIES for line in _lines(family, values))


def full_name(family: Family) -> str:
    return _PREFIX + family.name


def _lines(family: Family, values: ConsoleValues) -> Iterator[str]:
    name = full_name(family)
    yield f"# HELP {name} {family.meaning}"
    yield f"# TYPE {name} {family.kind}"
    for texts, value in family.values(values):
        # The labels are paths and names of our own, so nothing in them needs an escape.
        labels = ",".join(f'{label}="{text}"' for label, text in zip(family.labels, texts, strict=True))
        yield f"{name}{{{labels}}} {value:.9g}" if labels else f"{name} {value:.9g}"
