"""Says which records a search wants, from the fields of its page.

``FIELDS`` are those fields. The page of a search and the download of what it finds share them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from headrace.console.fields import Field, Value
from headrace.console.records.expressions import LONGEST_EXPRESSION, compiled
from headrace.console.records.filter_parser import LONGEST_FILTER, ParsedFilter, parse_filter
from headrace.console.records.times import read_time_ms, wrong_time

#: By name of the field: what the text must be found in.
TARGETS = ("value", "key", "key or value", "header")
MOST_RESULTS, MOST_SECONDS = 1_000, 300


class Term(NamedTuple):
    """A text that must be in a part of the record.

    :ivar header: the name of the header that is looked into; empty: any header.
    """

    target: str
    text: str
    is_expression: bool
    header: str = ""


@dataclass(frozen=True)
class Criteria:
    """The conditions that a record must meet. None: no condition.

    :ivar until_ms: records at this time and later are not wanted.
    :ivar until_offset: neither is the record with this offset.
    """

    term: Term | None = None
    filter: ParsedFilter | None = None
    from_ms: int | None = None
    until_ms: int | None = None
    from_offset: int | None = None
    until_offset: int | None = None


def _wrong_filter(text: str) -> str:
    try:
        parse_filter(text)
    except ValueError as error:
        return str(error)
    return ""


FIELDS: tuple[Field, ...] = (
    Field("text", "Text", longest=LONGEST_EXPRESSION, help="what the record contains; upper and lower case differ"),
    Field("inside", "Look into", kind="choice", choices=TARGETS, default="value"),
    Field("header", "Header", longest=500, help="the name of the header, if you look into one; empty: any"),
    Field("expression", "Regular expression (RE2)", kind="flag", default=False),
    Field(
        "filter", "Filter", longest=LONGEST_FILTER, check=_wrong_filter,
        help='for JSON and schemas: value.amount > 100 and value.user = "ann"',
    ),
    Field("partition", kind="number", default=None, least=0, most=2**31 - 1, help="empty: all partitions"),
    Field("from_time", "From time", check=wrong_time, longest=40, help="2026-01-31 10:00 in UTC, or milliseconds"),
    Field("until_time", "Until time", check=wrong_time, longest=40, help="records before this time"),
    Field("from_offset", "From offset", kind="number", default=None, least=0),
    Field("until_offset", "Until offset", kind="number", default=None, least=0, help="records before this offset"),
)  # fmt: skip


def criteria_of(values: Mapping[str, Value]) -> Criteria:
    """
    :raises ValueError: if the expression is not accepted.
    """
    text = str(values["text"])
    term = None
    if text:
        term = Term(str(values["inside"]), text, values["expression"] is True, str(values["header"]))
        if term.is_expression:
            compiled(text)
    elif values["header"]:
        term = Term("header", "", False, str(values["header"]))
    filter_text = str(values["filter"])
    return Criteria(
        term,
        parse_filter(filter_text) if filter_text else None,
        read_time_ms(str(values["from_time"])),
        read_time_ms(str(values["until_time"])),
        _number(values["from_offset"]),
        _number(values["until_offset"]),
    )


def _number(value: Value) -> int | None:
    return value if isinstance(value, int) else None
