"""Reads changes of a database in Debezium's envelope.

The value of a record is the envelope, or with Debezium's schema part an object with the envelope in ``payload``::

    {"op": "u", "before": {...}, "after": {"id": 7, "name": "ann"}, "source": {...}, "ts_ms": ...}
    {"schema": {...}, "payload": {"op": "u", ...}}

=====================  ==================================================================================
op                     what it does
=====================  ==================================================================================
c, r, u                sets the row of the record's key to ``after``
d, or no value at all  removes the row
t                      removes all rows of the topic that came before it in this partition; has no key
any other              the record is bad
=====================  ==================================================================================

Both forms are decoded by one schema: that of the envelope, with a field ``payload`` of the same type. So a reason for a
bad record names the column by its path in the record, ``payload.after.id``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.pipeline.decoding.text_columns import Parsing, Part
from headrace.pipeline.project.decode import Decode

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    Make = Callable[[Decode, StructType, Part], Parsing]

#: The column of a decoded record that has its operation, in one letter.
OPERATION = "_op"
_SETS, _REMOVES, TRUNCATES = ("c", "r", "u"), "d", "t"


def enveloped(make: Make, decode: Decode, columns: StructType, part: Part) -> Parsing:
    """Decodes envelopes whose rows have these columns.

    :param make: decodes a value by the columns that it gets.
    """
    from pyspark.sql import functions as F  # noqa: N812

    has_payload = decode.format == "json"
    parsed, _, error, _ = make(decode, _envelope(columns, has_payload=has_payload), part)
    read = F.col(part.parsed)
    operation, after = read["op"], read["after"]
    if has_payload:
        payload = read["payload"]
        operation = F.when(payload.isNotNull(), payload["op"]).otherwise(operation)
        after = F.when(payload.isNotNull(), payload["after"]).otherwise(after)
    sets = operation.isin(*_SETS)
    reason = (
        F.when(operation.isNull(), F.lit("the value is not a change in Debezium's envelope: it has no op"))
        .when(~operation.isin(*_SETS, _REMOVES, TRUNCATES), F.concat(F.lit("there is no op "), operation))
        .when(sets & after.isNull(), F.concat(F.lit("a change with op "), operation, F.lit(" has no after")))
        .when((operation == TRUNCATES) & F.col("_key").isNotNull(), F.lit("a change with op t has a key"))
    )
    fields = [F.when(sets, after[field.name]).alias(field.name) for field in columns]
    return Parsing(parsed, fields, F.coalesce(error, reason), operation)


def _envelope(columns: StructType, *, has_payload: bool) -> StructType:
    from pyspark.sql.types import StringType, StructField, StructType

    fields = [StructField("op", StringType()), StructField("after", columns)]
    return StructType([*fields, StructField("payload", StructType(fields))] if has_payload else fields)


def row_columns(envelope: StructType) -> StructType:
    """The columns of the rows, from the columns of an envelope.

    :raises ValueError: if these are not the columns of an envelope.
    """
    from pyspark.sql.types import StructType

    if "op" in envelope.names and "after" in envelope.names:
        columns = envelope["after"].dataType
        if isinstance(columns, StructType):
            return columns
    raise ValueError("the schema of kind changes must be Debezium's envelope, with the fields op and after")
