"""Compares rows: which are missing, which are unexpected, and which have changed in some columns.

Rows are a bag: a row may occur twice. Rows that are equal are paired first. Of the others, those with the same key are
one row that has changed; if the key is not known, those that have most columns in common.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]

from headrace.pipeline.view_tests.cells import Row, has_tolerance, is_equal

#: More rows than this are not paired by their similarity, which compares each with each.
_MAX_PAIRED = 500


@dataclass(frozen=True)
class Changed:
    """:param columns: the positions of the columns whose values differ."""

    expected: Row
    found: Row
    columns: tuple[int, ...]


@dataclass(frozen=True)
class Difference:
    """:param order: the position of the first row in another place, if only the order differs."""

    missing: tuple[Row, ...] = ()
    unexpected: tuple[Row, ...] = ()
    changed: tuple[Changed, ...] = ()
    order: int | None = None

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected or self.changed or self.order is not None)


def compare(
    expected: Sequence[Row], found: Sequence[Row], schema: pa.Schema, key: Sequence[str] = (), *, is_ordered: bool
) -> Difference:
    missing, unexpected = _unpaired(expected, found, schema)
    if not missing and not unexpected:
        return Difference(order=_first_moved(expected, found, schema) if is_ordered else None)
    positions = [schema.names.index(name) for name in key if name in schema.names]
    changed: list[Changed] = []
    for one in list(missing):
        other = _partner(one, unexpected, schema, positions, can_guess=len(missing) <= _MAX_PAIRED)
        if other is not None:
            missing.remove(one)
            unexpected.remove(other)
            kinds = enumerate(schema.types)
            columns = tuple(at for at, kind in kinds if not is_equal(one[at], other[at], kind))
            changed.append(Changed(one, other, columns))
    return Difference(tuple(missing), tuple(unexpected), tuple(changed))


def _unpaired(expected: Sequence[Row], found: Sequence[Row], schema: pa.Schema) -> tuple[list[Row], list[Row]]:
    """The rows of each side that have no equal on the other side."""
    exact = [at for at, kind in enumerate(schema.types) if not has_tolerance(kind)]
    by_exact: dict[str, list[Row]] = defaultdict(list)
    for row in found:
        by_exact[_text(row, exact)].append(row)
    missing = []
    for row in expected:
        candidates = by_exact[_text(row, exact)]
        equal = next((at for at, other in enumerate(candidates) if _is_same(row, other, schema)), None)
        if equal is None:
            missing.append(row)
        else:
            del candidates[equal]
    return missing, [row for rows in by_exact.values() for row in rows]


def _text(row: Row, positions: Sequence[int]) -> str:
    return json.dumps([row[at] for at in positions])


def _is_same(one: Row, other: Row, schema: pa.Schema) -> bool:
    return all(is_equal(a, b, kind) for a, b, kind in zip(one, other, schema.types, strict=True))


def _first_moved(expected: Sequence[Row], found: Sequence[Row], schema: pa.Schema) -> int | None:
    pairs = enumerate(zip(expected, found, strict=True))
    return next((at for at, (one, other) in pairs if not _is_same(one, other, schema)), None)


def _partner(
    row: Row, candidates: Sequence[Row], schema: pa.Schema, key: Sequence[int], *, can_guess: bool
) -> Row | None:
    if key:
        of_key = (each for each in candidates if all(is_equal(row[at], each[at], schema.types[at]) for at in key))
        return next(of_key, None)
    if not can_guess or len(candidates) > _MAX_PAIRED:
        return None
    best = max(candidates, default=None, key=lambda each: _common(row, each, schema))
    return best if best is not None and _common(row, best, schema) * 2 >= len(row) else None


def _common(one: Row, other: Row, schema: pa.Schema) -> int:
    return sum(is_equal(a, b, kind) for a, b, kind in zip(one, other, schema.types, strict=True))
