"""approx_count_distinct, combined: the registers of Spark's HyperLogLog++, so that the answer is Spark's, to the digit.

Spark hashes a value to 64 bits (xxhash64, seed 42). The first ``p`` bits choose one of 2^p registers; a register keeps
the largest number of leading zeros, plus one, seen in the remaining bits. Registers of parts combine by the larger one.
A sketch is stored as those registers that are not zero, each as 4 bytes, big-endian: ``register << 6 | value``, in
ascending order. So a group with few distinct values is a few bytes, and none is more than 4 * 2^p (2 KiB by default).

The partial result that Spark computes (``registers_column``) may have several values for one register; ``union`` takes
the largest. The estimate is Google's (Heule, Nunkesser, Hall 2013): linear counting while the sketch is sparse, beyond
that the raw estimate less a bias interpolated from tables, for which Spark's own class is asked.

Tried and dropped: Spark's hll_sketch_agg. Merging it takes a Spark job or another library, its answers are not those of
approx_count_distinct, and they depend on how rows were split.
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
    """p, for the standard deviation that a query allows (0.05 unless it says so)."""
    return math.ceil(2.0 * math.log(1.106 / relative_error) / math.log(2.0))


def registers_column(value: Column, p: int) -> Column:
    """An aggregate: the registers of all values that are not NULL."""
    from pyspark.sql import functions as F  # noqa: N812

    codes = F.sort_array(F.collect_set(F.when(value.isNotNull(), _code(value, p))))
    return F.unhex(F.array_join(F.transform(codes, _hex), ""))


def register_column(value: Column, p: int) -> Column:
    """Of one value: its register, or none if it is NULL."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.unhex(F.when(value.isNotNull(), _hex(_code(value, p))).otherwise(""))


def _code(value: Column, p: int) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    hash_ = F.xxhash64(value)
    register = F.shiftrightunsigned(hash_, 64 - p)
    rest = F.shiftleft(hash_, p).bitwiseOR(F.lit(1 << (p - 1)).cast("bigint"))
    zeros = F.lit(64) - F.length(F.bin(rest))
    return F.shiftleft(register, _VALUE_BITS).bitwiseOR((zeros + 1).cast("bigint"))


def _hex(code: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return F.lpad(F.hex(code), 8, "0")


def union(sketches: pa.Array, groups: npt.NDArray[np.int64], count: int) -> pa.Array:
    """One sketch a group.

    :param groups: for each sketch, which of the ``count`` groups it belongs to.
    """
    sizes = np.array([0 if each is None else len(each) // 4 for each in sketches.to_pylist()], dtype=np.int64)
    codes = np.frombuffer(b"".join(each or b"" for each in sketches.to_pylist()), dtype=">u4").astype(np.int64)
    owners = np.repeat(groups, sizes)
    # The largest value of a register is the last one among equal (group, register), once sorted.
    order = np.lexsort((codes, owners))
    codes, owners = codes[order], owners[order]
    registers = codes >> _VALUE_BITS
    last = np.ones(len(codes), dtype=bool)
    last[:-1] = (registers[1:] != registers[:-1]) | (owners[1:] != owners[:-1])
    codes, owners = codes[last], owners[last]
    ends = np.searchsorted(owners, np.arange(count), side="right")
    packed = codes.astype(">u4").tobytes()
    starts = np.concatenate(([0], ends[:-1])) if count else ends
    return pa.array([packed[4 * a : 4 * b] for a, b in zip(starts, ends, strict=True)], pa.binary())


def estimates(sketches: pa.Array, p: int, bias: Callable[[float], float]) -> pa.Array:
    """How many distinct values each sketch has seen, as Spark says it.

    :param bias: of a raw estimate: ``HyperLogLogPlusPlusHelper.estimateBias``.
    """
    return pa.array([_estimate(each, p, bias) for each in sketches.to_pylist()], pa.int64())


def _estimate(sketch: bytes | None, p: int, bias: Callable[[float], float]) -> int:
    codes = np.frombuffer(sketch or b"", dtype=">u4").astype(np.int64)
    m = 1 << p
    zero_registers = m - len(codes)
    values = codes & ((1 << _VALUE_BITS) - 1)
    inverse = float(zero_registers) + float(np.sum(np.ldexp(1.0, -values.astype(np.int32))))
    raw = _alpha(p) * m * m / inverse
    if zero_registers:
        linear = m * math.log(m / zero_registers)
        # The second condition is Spark's: the limit of HyperLogLog without the two plusses.
        if (p < 19 and linear <= _THRESHOLDS[p - 4]) or raw <= 2.5 * m:
            return _rounded(linear)
    return _rounded(raw - bias(raw) if p < 19 and raw < 5.0 * m else raw)


def _alpha(p: int) -> float:
    return {4: 0.673, 5: 0.697, 6: 0.709}.get(p, 0.7213 / (1.0 + 1.079 / (1 << p)))


def _rounded(value: float) -> int:
    """As Java's Math.round."""
    return math.floor(value + 0.5)
