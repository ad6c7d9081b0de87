"""The parts that both perf tests share: option types, the table of metrics, times in Java's date formats."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError
from collections.abc import Iterator, Mapping
from datetime import datetime

from headrace.tools.shared.commands import Output

#: Java's letters for a time, and those of strftime, which has none for SSS.
_DATE_LETTERS = {"yyyy": "%Y", "yy": "%y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_MILLISECONDS = "SSS"
DATE_FORMAT = "yyyy-MM-dd HH:mm:ss:SSS"


def positive(text: str) -> int:
    """An argparse type."""
    if not text.isdecimal() or int(text) == 0:
        raise ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


def not_negative(text: str) -> int:
    """An argparse type."""
    if not text.isdecimal():
        raise ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return int(text)


def date_text(time_s: float, date_format: str) -> str:
    """Formats a local time in one of Java's numeric date formats, from years to milliseconds."""
    # Round to the millisecond first, so that rounding carries into the seconds.
    moment = datetime.fromtimestamp(round(time_s, 3))
    text = date_format
    for letters, directive in _DATE_LETTERS.items():
        text = text.replace(letters, moment.strftime(directive))
    return text.replace(_MILLISECONDS, f"{moment.microsecond // 1000:03}")


def say_above_bar(out: Output, text: str) -> None:
    """Prints a line while a progress bar may be visible. On a terminal rich replaces standard output meanwhile."""
    if out.is_terminal:
        sys.stdout.write(f"{text}\n")
    else:
        out.say(text)
    sys.stdout.flush()


def metrics_lines(group: str, client_id: str, metrics: Mapping[str, float]) -> Iterator[str]:
    """A table of metrics as Kafka's tools print it."""
    names = {f"{group}:{name}:{{client-id={client_id}}}": value for name, value in sorted(metrics.items())}
    width = max(map(len, names))
    yield ""
    yield f"{'Metric Name':<{width}}   Value"
    for name, value in names.items():
        yield f"{name:<{width}} : {value:.3f}"
