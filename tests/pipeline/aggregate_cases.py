"""Makes queries and data at random, from a seed, for tests of the algebra of partial results.

A query has up to two keys and some of ``CASES``: every function that ``plan.FUNCTIONS`` accepts, over every type that
the function takes, with and without a FILTER. The data has what databases, Arrow and Spark treat in different ways:
NULL, NaN, infinities, -0.0, the largest and smallest integers, decimals of 38 digits, empty texts, texts with quotes,
NUL and characters beyond 16 bits, times before 1970 and far in the future. Doubles are multiples of 1/8 below 2^20, so
that their sums are exact in any order: whatever differs is a fault.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import NamedTuple

START = datetime(2026, 11, 16, 8, tzinfo=UTC)
COLUMNS = {
    "text": "STRING", "raw": "BINARY", "b": "BOOLEAN", "tiny": "TINYINT", "i": "INT", "l": "BIGINT", "wide": "BIGINT",
    "f": "FLOAT", "d": "DOUBLE", "price": "DECIMAL(12, 2)", "huge": "DECIMAL(38, 4)", "at": "TIMESTAMP",
    "clock": "TIMESTAMP_NTZ", "day": "DATE", "k": "STRING", "kd": "DOUBLE",
    "_topic": "STRING", "_partition": "INT", "_offset": "BIGINT", "_timestamp": "TIMESTAMP",
}  # fmt: skip
SCHEMA = ", ".join(f"{name} {type_}" for name, type_ in COLUMNS.items())
_NUMBERS = ("tiny", "i", "l", "f", "d", "price", "huge")
_VALUES = ("text", "raw", "b", *_NUMBERS, "wide", "at", "clock", "day")
KEYS = (
    "k", "kd", "b", "day", "i", "text", "raw", "price", "upper(k)", "date_trunc('HOUR', at)", "i % 2", "clock", "huge",
    "struct(b, kd)", "window(at, '1 day')", "CAST(kd AS FLOAT)", "substring(text, 1, 1)",
)  # fmt: skip
_PLACE = "_timestamp, _topic, _partition, _offset"


class Case(NamedTuple):
    """
    :ivar function: the class of Catalyst, as ``plan.FUNCTIONS`` has it.
    :ivar ours: the aggregate with ``{0}`` for the FILTER.
    :ivar spark: what it must be equal to, where Spark's own answer depends on the order of rows; ``{1}`` stands for the
        condition of the FILTER.
    """

    function: str
    ours: str
    spark: str = ""


def _cases() -> list[Case]:
    cases = [Case("Count", "count(*){0}"), Case("Count", "count(1){0}"), Case("Count", "count(text, l){0}")]
    cases += [Case("Count", f"count({value}){{0}}") for value in _VALUES]
    cases += [Case("CountIf", "count_if(b){0}"), Case("CountIf", "count_if(l > 0){0}")]
    cases += [Case("Sum", f"sum({value}){{0}}") for value in _NUMBERS]
    cases += [Case("Average", f"avg({value}){{0}}") for value in _NUMBERS]
    cases += [Case("Min", f"min({value}){{0}}") for value in _VALUES]
    cases += [Case("Max", f"max({value}){{0}}") for value in _VALUES]
    cases += [Case("Max", "max(DISTINCT l){0}"), Case("Min", "min(DISTINCT text){0}"), Case("Min", "min(NULL){0}")]
    cases += [Case("BoolAnd", f"{name}(b){{0}}") for name in ("bool_and", "every")]
    cases += [Case("BoolOr", f"{name}(b){{0}}") for name in ("bool_or", "any", "some")]
    distinct = [*_VALUES, "array(d, kd)", "struct(text, f)", "concat(text, k)"]
    cases += [Case("HyperLogLogPlusPlus", f"approx_count_distinct({value}){{0}}") for value in distinct]
    cases += [Case("HyperLogLogPlusPlus", f"approx_count_distinct(l, {sd}){{0}}") for sd in (0.3, 0.1, 0.02)]
    for value in _VALUES:
        cases += _by_time(value)
        cases += [_by_other("MaxBy", "max_by", value, "l"), _by_other("MinBy", "min_by", "text", value)]
    Random(13).shuffle(cases)  # so that each query has some that take Spark long to plan, and some that do not
    return cases


def _by_time(value: str) -> list[Case]:
    """first and last go by time here, where Spark takes the row that comes first."""
    place, not_null = f"CASE WHEN {{1}} THEN struct({_PLACE}) END", f"CASE WHEN {{1}} AND {value} IS NOT NULL THEN"
    known = f"{not_null} struct({_PLACE}) END"
    return [
        Case("First", f"first({value}){{0}}", f"min_by({value}, {place})"),
        Case("First", f"first_value({value}){{0}} IGNORE NULLS", f"min_by({value}, {known})"),
        Case("Last", f"last({value}){{0}}", f"max_by({value}, {place})"),
        Case("Last", f"last({value}, true){{0}}", f"max_by({value}, {known})"),
        Case("AnyValue", f"any_value({value}){{0}} IGNORE NULLS", f"min_by({value}, {known})"),
    ]


def _by_other(function: str, name: str, value: str, order: str) -> Case:
    place = f"CASE WHEN {{1}} AND {order} IS NOT NULL THEN struct({order}, {_PLACE}) END"
    return Case(function, f"{name}({value}, {order}){{0}}", f"{name}({value}, {place})")


CASES = _cases()


def queries(chance: Random, cases: Sequence[Case]) -> tuple[str, str]:
    """A query with these functions and some keys; and the query that says what Spark makes of it."""
    keys = chance.sample(KEYS, chance.choice((0, 1, 1, 2)))
    selected = [(f"{key} AS g{number}",) * 2 for number, key in enumerate(keys)]
    for number, case in enumerate(cases):
        condition = chance.choice(("", "", "b", "l > 0", "text <> ''"))
        filter_ = f" FILTER (WHERE {condition})" if condition else ""
        spark = case.spark.format(filter_, f"({condition or 'true'})") if case.spark else case.ours.format(filter_)
        selected.append((f"{case.ours.format(filter_)} AS a{number}", f"{spark} AS a{number}"))
    groups = f" GROUP BY {', '.join(keys)}" if keys else ""
    ours, sparks = zip(*selected, strict=True)
    return f"SELECT {', '.join(ours)} FROM events{groups}", f"SELECT {', '.join(sparks)} FROM events{groups}"


def events(chance: Random, count: int) -> list[tuple[object, ...]]:
    return [_event(chance, number) for number in range(count)]


def _event(chance: Random, number: int) -> tuple[object, ...]:
    of = {name: None if chance.random() < 0.15 else chance.choice(_POOLS[name])(chance) for name in _POOLS}
    place = ("clicks", number % 2, number, START + timedelta(seconds=chance.randrange(20)))
    return (*(of[name] for name in COLUMNS if not name.startswith("_")), *place)


def _dyadic(chance: Random) -> float:
    return chance.randrange(-(2**23), 2**23) / 8


def _one_of(*values: object):
    return lambda chance: chance.choice(values)


_TEXTS = (
    "",
    " ",
    "a",
    "A",
    "b",
    'quo"te',
    "back\\slash",
    "new\nline",
    "nul\x00",
    "ünü",
    "日本",
    "\U0001f600",
    "z" * 1100,
)
_FLOATS = (0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -2.25)
_POOLS = {
    "text": [_one_of(*_TEXTS), lambda chance: str(chance.randrange(500))],
    "raw": [_one_of(b"", b"\x00", b"\xff\x00", b"a")],
    "b": [_one_of(True, False)],
    "tiny": [_one_of(-128, 127, 0, 1)],
    "i": [_one_of(-(2**31), 2**31 - 1, 0, 1, 2, 3)],
    "l": [_one_of(-1, 0, 1, 7), lambda chance: chance.randrange(-(2**40), 2**40)],
    "wide": [_one_of(-(2**63), 2**63 - 1, 0, 1)],
    "f": [_one_of(*_FLOATS), lambda chance: chance.randrange(-(2**12), 2**12) / 8],
    "d": [_one_of(*_FLOATS), _dyadic],
    "price": [lambda chance: Decimal(chance.randrange(-(10**12) + 1, 10**12)).scaleb(-2)],
    "huge": [_one_of(Decimal(0)), lambda chance: Decimal(chance.randrange(-(10**33), 10**33)).scaleb(-4)],
    "at": [
        lambda chance: START + timedelta(seconds=chance.randrange(90_000)),
        _one_of(datetime(1901, 1, 1, tzinfo=UTC), datetime(9998, 12, 31, 23, 59, 59, 999999, UTC)),
    ],
    "clock": [_one_of(datetime(1969, 12, 31, 23, 59, 59), datetime(2026, 3, 29, 2, 30))],
    "day": [_one_of(date(1, 1, 1), date(1969, 12, 31), date(2026, 11, 16), date(9999, 12, 31))],
    "k": [_one_of("home", "about", "", 'quo"te', "ünü")],
    "kd": [_one_of(0.0, -0.0, math.nan, 1.5)],
}
