"""The table of a benchmark: one row per measurement, with both sides, the ratio, and the ratio to reach."""

from __future__ import annotations

import datetime
import sys
from dataclasses import dataclass, field
from math import isnan

import servers

PERFORMANCE = servers.ROOT / "docs" / "performance.md"


@dataclass
class Row:
    what: str
    unit: str
    #: How the ratio ours / Apache's must compare with ``bar``: "<=" or ">=".
    relation: str
    #: Infinite if the row has no target.
    bar: float = float("inf")
    apache: float = float("nan")
    headrace: float = float("nan")
    #: What our own value may be at most, whatever Apache's is. Infinite if there is no such target.
    limit: float = float("inf")

    @property
    def ratio(self) -> float:
        return self.headrace / self.apache

    @property
    def verdict(self) -> str:
        has_bar = self.bar != float("inf") and not isnan(self.ratio)
        has_limit = self.limit != float("inf") and not isnan(self.headrace)
        if not (has_bar or has_limit):
            return ""
        is_reached = not has_bar or (self.ratio <= self.bar if self.relation == "<=" else self.ratio >= self.bar)
        is_reached = is_reached and (not has_limit or self.headrace <= self.limit)
        return "reached" if is_reached else "**not reached**"

    @property
    def line(self) -> str:
        sign = self.relation.replace("<=", "≤").replace(">=", "≥")
        bars = [f"{sign} {self.bar:.3g} ×"] if self.bar != float("inf") else []
        bars += [f"ours ≤ {self.limit:.3g} {self.unit}"] if self.limit != float("inf") else []
        bar = ", ".join(bars)
        return (
            f"| {self.what} | {self.apache:,.4g} {self.unit} | {self.headrace:,.4g} {self.unit} | {self.ratio:.3g} × "
            f"| {bar} | {self.verdict} |"
        )


@dataclass
class Table:
    rows: dict[str, Row] = field(default_factory=dict)
    #: What ours are compared with.
    peer: str = "Apache Kafka 4.3.0"
    ours: str = "Headrace"
    remarks: list[str] = field(default_factory=list)

    def put(self, side: str, key: str, value: float) -> None:
        row = self.rows[key]
        setattr(row, side, value)
        print(f"  {side:<9} {row.what}: {value:,.4g} {row.unit}", flush=True)

    def remark(self, text: str) -> None:
        """A sentence that goes under the table."""
        self.remarks.append(text)
        print(f"  {text}", flush=True)

    def markdown(self, *more: str) -> str:
        lines = [
            measured(),
            "",
            f"| | {self.peer} | {self.ours} | ratio | to reach | |",
            "|---|---|---|---|---|---|",
            *(row.line for row in self.rows.values() if not (isnan(row.apache) and isnan(row.headrace))),
        ]
        return "\n".join([*lines, "", *self.remarks, *([""] if self.remarks else []), *more])


def measured() -> str:
    """When and where a table was measured."""
    return f"Measured on {datetime.date.today()}, {servers.machine()}; Python {sys.version.split()[0]}."


def write(name: str, text: str) -> None:
    """Puts the text into docs/performance.md, between the two marks of that name."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    page = PERFORMANCE.read_text()
    before, rest = page.split(begin)
    PERFORMANCE.write_text(f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}")
