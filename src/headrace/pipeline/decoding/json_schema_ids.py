"""Looks up the ids of JSON records in a schema registry: each must be the id of a JSON schema.

A JSON value names its fields, so its schema is not needed to read it. But a value whose id is unknown, or is that of an
Avro schema, was not written as JSON of this registry: it is a dead letter.

The ids of many records are few. So the first five bytes of all records of a batch are compared at once, and the
registry is asked once per id. The result is a column of the raw records, NULL or the reason, in one of two ways:

* ``add_problems`` computes it for records in the driver, so that JSON needs no Spark job (``query.row_functions``);
* ``with_problems`` lets Spark's Python workers compute it, if the records do not have it yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.pipeline.decoding.registry import HEADER_BYTES, SchemaRegistry, UnknownSchema, schema_id_of
from headrace.pipeline.project.decode import Decode
from headrace.pipeline.spark.arrow_functions import arrow_function

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_JSON = "JSON"
#: From arrays of values to arrays of reasons.
Check = Callable[["pa.Array"], "pa.Array"]


def problem_column(column: str) -> str:
    """The name of the column with the reason, for the column that has the values."""
    return f"_{column}_schema_problem"


def checked_columns(decode: Decode) -> dict[str, Decode]:
    """The columns of the log whose ids are looked up: ``value``, ``key``."""
    parts = {"value": decode} if decode.key is None else {"value": decode, "key": decode.key}
    return {name: part for name, part in parts.items() if part.format == "json" and part.registry}


def id_check(decode: Decode) -> Check:
    """Returns a function from the values of records to the reasons why their ids are wrong.

    :raises RegistryUnavailable: (the function) if the registry does not answer.
    """
    registries: list[SchemaRegistry] = []

    def check(values: pa.Array) -> pa.Array:
        import pyarrow as pa
        import pyarrow.compute as pc  # type: ignore[import-untyped]

        if not registries:  # made in the worker
            registries.append(SchemaRegistry(decode.registry, decode.registry_options))
        heads = pc.binary_slice(values, 0, HEADER_BYTES).dictionary_encode()
        reasons = [_problem(registries[0], head) for head in heads.dictionary.to_pylist()]
        return pa.array(reasons, pa.string()).take(heads.indices)

    return check


def _problem(registry: SchemaRegistry, head: bytes) -> str | None:
    try:
        schema_id = schema_id_of(head)
    except ValueError:
        return None  # ``text_columns`` has the reason
    try:
        kind = registry.schema(schema_id).kind
    except UnknownSchema as error:
        return str(error)
    return None if kind == _JSON else f"the schema with the id {schema_id} is of type {kind}, not {_JSON}"


def with_problems(decode: Decode, raw: DataFrame) -> DataFrame:
    """The records with a column of reasons for each of ``checked_columns``."""
    from pyspark.sql import functions as F  # noqa: N812

    for column, part in checked_columns(decode).items():
        if problem_column(column) not in raw.columns:
            heads = F.substring(F.col(column), F.lit(1), F.lit(HEADER_BYTES))
            raw = raw.withColumn(problem_column(column), arrow_function(id_check(part), "string")(heads))
    return raw


class DriverCheck:
    """Adds the columns of reasons to records in the driver. Does nothing for sources whose ids are not looked up."""

    def __init__(self, decode: Decode) -> None:
        self._checks = {column: id_check(part) for column, part in checked_columns(decode).items()}

    def add_problems(self, records: pa.Table) -> pa.Table:
        """
        :raises RegistryUnavailable: if the registry does not answer.
        """
        import pyarrow as pa

        for column, check in self._checks.items():
            problems = pa.chunked_array([check(chunk) for chunk in records[column].chunks], pa.string())
            records = records.append_column(problem_column(column), problems)
        return records

    def schema(self, raw: StructType) -> StructType:
        """The columns of records, with the columns of reasons."""
        from pyspark.sql.types import StringType, StructField, StructType

        return StructType([*raw, *(StructField(problem_column(column), StringType()) for column in self._checks)])
