"""Makes JSON objects from whole columns: millions per second, instead of one Python object per record."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: Numbers, or texts that end with numbers.
Column = np.ndarray | tuple[str, np.ndarray]


def json_objects(columns: Mapping[str, Column]) -> pa.BinaryArray:
    """One object per row, with these fields."""
    parts: list[pa.Array | str] = []
    for at, (name, column) in enumerate(columns.items()):
        opening = f'{"," if at else "{"}"{name}":'
        if isinstance(column, tuple):
            prefix, numbers = column
            parts += [f'{opening}"{prefix}', pa.array(numbers).cast(pa.string()), '"']
        else:
            parts += [opening, pa.array(column).cast(pa.string())]
    return pc.binary_join_element_wise(*parts, "}", "").cast(pa.binary())
