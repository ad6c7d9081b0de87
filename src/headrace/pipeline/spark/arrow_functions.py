"""Makes functions for Spark's expressions from Python functions over Arrow arrays: one call per batch of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType


def arrow_function(function: Callable[..., Any], result: DataType | str) -> Callable[..., Column]:
    """
    :param function: from arrays of equal length to one more such array. Spark's Python workers run it.
    :param result: the type of the array.
    """
    from pyspark.sql import functions as F  # noqa: N812

    function.__annotations__ = {}  # Spark would use the annotations as its own type hints
    made: Callable[..., Column] = F.arrow_udf(function, result)  # type: ignore[attr-defined]
    return made
