"""A bag of rows: rows with multiplicities, which are positive for new rows and negative for removed rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headrace.pipeline.touched.row_codec import RowCodec, identities

#: The column that every table of a bag has besides its own, so that rows without columns are counted.
COUNT = "_n"


class Bag(NamedTuple):
    """
    :ivar rows: the different rows, with the columns of the codec and then ``COUNT``.
    :ivar keys: the hash of each row's key.
    :ivar identities: the identity of each row (``row_codec``).
    """

    rows: pa.Table
    keys: list[int]
    identities: list[bytes]

    @classmethod
    def of(cls, codec: RowCodec, rows: pa.Table, keys: Sequence[int], weights: np.ndarray[Any, Any]) -> Self:
        """The bag of rows that may repeat; rows whose weights add up to 0 are left out.

        :param rows: the columns of the codec. If there are none, Arrow may have lost the number of rows.
        """
        ids = identities(codec.encode(rows), len(weights))
        total: dict[bytes, int] = {}
        first: dict[bytes, int] = {}
        for at, (each, weight) in enumerate(zip(ids, weights.tolist(), strict=True)):
            total[each] = total.get(each, 0) + weight
            first.setdefault(each, at)
        kept = [each for each, weight in total.items() if weight]
        places = [first[each] for each in kept]
        counts = pa.array([total[each] for each in kept], pa.int64())
        nothing = pa.nulls(len(weights), pa.int64())
        whole = rows.append_column(COUNT, nothing) if rows.num_columns else pa.table({COUNT: nothing})
        taken = whole.take(pa.array(places, pa.int64()))
        return cls(_counted(taken, counts), [keys[at] for at in places], kept)

    @classmethod
    def empty(cls, codec: RowCodec) -> Self:
        return cls(codec.schema.append(pa.field(COUNT, pa.int64())).empty_table(), [], [])

    def __bool__(self) -> bool:
        return bool(self.identities)

    @property
    def counts(self) -> list[int]:
        values: list[int] = self.rows.column(COUNT).to_pylist()
        return values

    def plus(self, other: Bag) -> Bag:
        """Both bags together."""
        if not other:
            return self
        if not self:
            return Bag(*other)
        counts = dict(zip(self.identities, self.counts, strict=True))
        for each, count in zip(other.identities, other.counts, strict=True):
            counts[each] = counts.get(each, 0) + count
        rows = pa.concat_tables([self.rows, other.rows])
        keys, ids = [*self.keys, *other.keys], [*self.identities, *other.identities]
        seen: set[bytes] = set()
        places = [at for at, each in enumerate(ids) if counts[each] and not (each in seen or seen.add(each))]  # type: ignore[func-returns-value]
        column = pa.array([counts[ids[at]] for at in places], pa.int64())
        taken = _counted(rows.take(pa.array(places, pa.int64())), column)
        return Bag(taken, [keys[at] for at in places], [ids[at] for at in places])

    def part(self, *, is_positive: bool) -> Bag:
        """The new rows of a change, or the removed rows, with positive multiplicities."""
        counts = self.counts
        places = [at for at, count in enumerate(counts) if (count > 0) is is_positive]
        column = pa.array([abs(counts[at]) for at in places], pa.int64())
        taken = _counted(self.rows.take(pa.array(places, pa.int64())), column)
        return Bag(taken, [self.keys[at] for at in places], [self.identities[at] for at in places])

    def of_keys(self, keys: frozenset[int], *, is_in: bool = True) -> Bag:
        """The rows with these keys, or the rows with other keys."""
        places = [at for at, key in enumerate(self.keys) if (key in keys) is is_in]
        taken = self.rows.take(pa.array(places, pa.int64()))
        return Bag(taken, [self.keys[at] for at in places], [self.identities[at] for at in places])

    def copies(self, *, are_needed: bool = True) -> pa.Table:
        """The rows as often as they occur, in an order that depends on the rows only."""
        counts = np.asarray(self.counts, dtype=np.int64)
        assert (counts > 0).all(), "a bag of rows has a negative multiplicity"
        order = np.asarray(sorted(range(len(self.identities)), key=self.identities.__getitem__), dtype=np.int64)
        places = np.repeat(order, counts[order]) if are_needed else order
        return self.rows.take(pa.array(places, pa.int64()))


def _counted(rows: pa.Table, counts: pa.Array) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(COUNT), COUNT, counts)
