"""Combines approx_count_distinct: keeps the registers of Spark's HyperLogLog++, so that answers equal Spark's exactly.

Spark hashes a value to 64 bits (xxhash64, seed 42). The first ``p`` bits choose one of 2^p registers; a register keeps
the largest number of leading zeros, plus one, seen in the remaining bits. Registers of parts combine by the larger one.
A sketch is stored as those registers that are not zero, each as 4 bytes, big-endian: ``register << 6 | value``, in
ascending order. So a group with few distinct values takes a few bytes, and no sketch takes more than 4 * 2^p bytes (2
KiB by default).

Every sketch that this module makes has one value per register: a partial result of Spark (``registers_column``) and a
merged sketch (``union``) look the same. Sketches that earlier versions stored may hold several values per register, so
``estimates`` takes the largest value of a register too.

The estimate is Google's (Heule, Nunkesser, Hall 2013): linear counting while the sketch is sparse; otherwise the raw
estimate minus a bias that is interpolated from tables. Spark's own class computes the bias.

Tried and dropped: Spark's hll_sketch_agg. Merging needs a Spark job or another library, its answers differ from those
of approx_count_distinct, and they depend on how rows were split.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from pyspark.sql import Column

#: Up to which estimate linear counting is better, by p from 4 (the paper's table).
_THRESHOLDS = (10, 20, 40, 80, 220, 400, 900, 1800, 3100, 6500, 11500, 20000, 50000, 120000, 350000)
_VALUE_BITS = 6


def precision(relative_error: float) -> int:
    """p, for the standard deviation that a query allows (0.05 by default)."""
    return math.ceil(2.0 * math.log(1.106 / relative_error) / math.log(2.0))


def registers_column(value: Column, p: int) -> Column:
    """An aggregate: the registers of all values that are not NULL."""
    from pyspark.sql import functions as F  # noqa: N812

    codes = F.sort_array(F.collect_set(F.when(value.isNotNull(), _code(value, p))))
    # The sorted codes are the variable of a lambda: Spark would sort them again for each use of the expression.
    largest = F.transform(F.array(codes), _largest_codes)[0]
    return F.unhex(F.array_join(F.transform(largest, _hex), ""))


def register_column(value: Column, p: int) -> Column:
    """The register of one value; none if the value is NULL."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.unhex(F.when(value.isNotNull(), _hex(_code(value, p))).otherwise(""))


def _code(value: Column, p: int) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    hash_ = F.xxhash64(value)
    register = F.shiftrightunsigned(hash_, 64 - p)
    rest = F.shiftleft(hash_, p).bitwiseOR(F.lit(1 << (p - 1)).cast("bigint"))
    zeros = F.lit(64) - F.length(F.bin(rest))
    return F.shiftleft(register, _VALUE_BITS).bitwiseOR((zeros + 1).cast("bigint"))


def _largest_codes(codes: Column) -> Column:
    """The last code of each register, of codes in ascending order."""
    from pyspark.sql import functions as F  # noqa: N812

    def is_last(code: Column, index: Column) -> Column:
        following = F.shiftright(F.get(codes, index + 1), _VALUE_BITS)
        return F.coalesce(following != F.shiftright(code, _VALUE_BITS), F.lit(True))

    return F.filter(codes, is_last)


def _hex(code: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return F.lpad(F.hex(code), 8, "0")


def union(sketches: pa.Array, groups: npt.NDArray[np.int64], count: int) -> pa.Array:
    """One sketch per group.

    :param groups: for each sketch, which of the ``count`` groups it belongs to.
    """
    codes, owners = _largest(sketches, groups)
    ends = np.searchsorted(owners, np.arange(count), side="right")
    packed = codes.astype(">u4").tobytes()
    starts = np.concatenate(([0], ends[:-1])) if count else ends
    return pa.array([packed[4 * a : 4 * b] for a, b in zip(starts, ends, strict=True)], pa.binary())


def _largest(sketches: pa.Array, groups: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The largest code of each register of each group, by group and register; and the groups of these codes."""
    found = [each or b"" for each in sketches.to_pylist()]
    sizes = np.array([len(each) // 4 for each in found], dtype=np.int64)
    codes = np.frombuffer(b"".join(found), dtype=">u4").astype(np.int64)
    owners = np.repeat(groups, sizes)
    # The largest value of a register is the last one among equal (group, register), once sorted.
    order = np.lexsort((codes, owners))
    codes, owners = codes[order], owners[order]
    registers = codes >> _VALUE_BITS
    is_last = np.ones(len(codes), dtype=bool)
    is_last[:-1] = (registers[1:] != registers[:-1]) | (owners[1:] != owners[:-1])
    return codes[is_last], owners[is_last]


def estimates(sketches: pa.Array, p: int, bias: Callable[[float], float]) -> pa.Array:
    """The number of distinct values of each sketch, as Spark estimates it.

    :param bias: the bias of a raw estimate: ``HyperLogLogPlusPlusHelper.estimateBias``.
    """
    count, m = len(sketches), 1 << p
    codes, owners = _largest(sketches, np.arange(count))
    values = (codes & ((1 << _VALUE_BITS) - 1)).astype(np.int32)
    zero_registers = m - np.bincount(owners, minlength=count)
    inverses = zero_registers + np.bincount(owners, np.ldexp(1.0, -values), minlength=count)
    found = [
        _estimate(zeros, inverse, p, bias)
        for zeros, inverse in zip(zero_registers.tolist(), inverses.tolist(), strict=True)
    ]
    return pa.array(found, pa.int64())


def _estimate(zero_registers: int, inverse: float, p: int, bias: Callable[[float], float]) -> int:
    """
    :param inverse: the sum of 2^-value over all registers.
    """
    m = 1 << p
    raw = _alpha(p) * m * m / inverse
    if zero_registers:
        linear = m * math.log(m / zero_registers)
        # The second condition is Spark's: the limit of plain HyperLogLog.
        if (p < 19 and linear <= _THRESHOLDS[p - 4]) or raw <= 2.5 * m:
            return _rounded(linear)
    return _rounded(raw - bias(raw) if p < 19 and raw < 5.0 * m else raw)


def _alpha(p: int) -> float:
    return {4: 0.673, 5: 0.697, 6: 0.709}.get(p, 0.7213 / (1.0 + 1.079 / (1 << p)))


def _rounded(value: float) -> int:
    """Rounds as Java's Math.round."""
    return math.floor(value + 0.5)
