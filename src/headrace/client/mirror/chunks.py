"""Splits polled records by topic, and pairs their offsets with the offsets at the target. Arrays, no I/O.

``poll_arrow`` returns records of several topics in one RecordBatch. :func:`split_by_topic` makes one table per topic,
for ``send_arrow``, and keeps the offsets. :func:`offset_pieces` pairs these offsets with those at the target.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headrace.client.mirror.offset_translation import Piece

if TYPE_CHECKING:
    from numpy.typing import NDArray

_COLUMNS = ["partition", "timestamp", "key", "value", "headers"]


class Chunk(NamedTuple):
    """Records of one topic. ``offsets`` has the source offsets per partition, in the order of the records."""

    topic: str
    table: pa.Table
    offsets: dict[int, NDArray[np.int64]]


def split_by_topic(records: pa.RecordBatch) -> list[Chunk]:
    """
    :param records: the result of ``poll_arrow`` with headers.
    """
    topics = records.column("topic")
    codes = topics.indices.to_numpy()
    names: list[str] = topics.dictionary.to_pylist()
    columns = records.select(_COLUMNS)
    ranges: dict[int, list[tuple[int, int]]] = {}
    for start, end in _equal_ranges(codes):
        ranges.setdefault(int(codes[start]), []).append((start, end))
    partitions, offsets = records.column("partition").to_numpy(), records.column("offset").to_numpy()
    return [
        Chunk(
            names[code],
            pa.Table.from_batches([columns.slice(start, end - start) for start, end in its]),
            _by_partition(_joined(partitions, its), _joined(offsets, its)),
        )
        for code, its in ranges.items()
    ]


def _joined(column: NDArray[np.int64], ranges: list[tuple[int, int]]) -> NDArray[np.int64]:
    return np.concatenate([column[start:end] for start, end in ranges])


def _by_partition(partitions: NDArray[np.int64], offsets: NDArray[np.int64]) -> dict[int, NDArray[np.int64]]:
    found: dict[int, list[NDArray[np.int64]]] = {}
    for start, end in _equal_ranges(partitions):
        found.setdefault(int(partitions[start]), []).append(offsets[start:end])
    return {partition: np.concatenate(its) for partition, its in found.items()}


def _equal_ranges(numbers: NDArray[np.int64]) -> Iterable[tuple[int, int]]:
    """Returns ranges of equal numbers: start and end."""
    ends = [*(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    return zip([0, *ends[:-1]], ends, strict=True)


def offset_pieces(source: NDArray[np.int64], placed: Iterable[tuple[int, int]]) -> list[Piece]:
    """Returns the pieces of one partition's records: ranges without a gap at the source and at the target.

    :param placed: first offset and number of records of each batch at the target. A negative offset is not known.
    """
    found: list[Piece] = []
    at = 0
    for first, count in placed:
        its = source[at : at + count]
        at += count
        if first < 0:
            continue
        cuts = [0, *(np.flatnonzero(np.diff(its) != 1) + 1).tolist(), count]
        for start, end in pairwise(cuts):
            piece = Piece(int(its[start]), first + start, end - start)
            if found and _follows(found[-1], piece):
                found[-1] = found[-1]._replace(length=found[-1].length + piece.length)
            else:
                found.append(piece)
    assert at == len(source), "the batches have other records than the source"
    return found


def _follows(before: Piece, piece: Piece) -> bool:
    ends = (before.source_first + before.length, before.target_first + before.length)
    return ends == (piece.source_first, piece.target_first)
