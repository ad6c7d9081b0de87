"""What ``.option(...)`` may say of the sink, and which columns it takes: as Spark's Kafka connector has it, and more.

::

    kafka.bootstrap.servers     has to be there; other kafka.* are options of our producer
    topic                       for all rows; without it each row has one in the column topic
    transactionalIdPrefix       ours: exactly once, by transactions whose ids begin so (exactly_once.py)

    value       binary or string    has to be there
    key         binary or string
    topic       string
    partition   int
    headers     array<struct<key: string, value: binary>>
    timestamp   timestamp, or bigint milliseconds; the connector as of Spark 3.5 lets the producer's clock decide

Other columns are passed over, as the connector does; so is a timestamp of another type, somebody's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.client.config import ProducerConfig
from headrace.pipeline.spark.options import BadOption, Given

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_NAMES = ("topic", "transactionalIdPrefix")
#: Of Spark itself, handed on to sinks too.
_OF_SPARK = ("checkpointlocation", "queryname", "path")
#: Of the connector, whose writer does not look at it: a column headers is written in any case.
_WITHOUT_EFFECT = ("includeheaders",)
_REFUSED = {
    "key.serializer": "keys are binary or string columns",
    "value.serializer": "values are binary or string columns",
    "transactional.id": "say transactionalIdPrefix: each task needs an id of its own",
}
_TYPES = {
    "value": ("binary", "string"),
    "key": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int", "bigint", "smallint", "tinyint"),
    "headers": ("array<struct<key:string,value:binary>>",),
}
#: What the broker lets by default. A driver that is away for longer cannot commit what its tasks have written.
_TRANSACTION_TIMEOUT_MS = "900000"


@dataclass(frozen=True, kw_only=True)
class SinkOptions:
    #: For our producer, by Kafka's names.
    client: Mapping[str, str]
    topic: str | None = None
    transactional_id_prefix: str | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str], schema: StructType) -> SinkOptions:
        """
        :raises BadOption: with the name of the option or column, and what would do.
        """
        options = Given(given, _NAMES, ignored=(*_OF_SPARK, *_WITHOUT_EFFECT))
        client = options.kafka()
        for name, advice in _REFUSED.items():
            if name in client:
                raise BadOption(f"kafka.{name} cannot be set: {advice}")
        topic, prefix = options.text("topic"), options.text("transactionalIdPrefix")
        if prefix is not None:
            client.setdefault("transaction.timeout.ms", _TRANSACTION_TIMEOUT_MS)
        try:
            ProducerConfig.load({**client, **({"transactional.id": prefix} if prefix else {})})
        except (TypeError, ValueError) as error:
            raise BadOption(f"kafka.*: {error}") from None
        _check_columns(schema, topic)
        return cls(client=client, topic=topic, transactional_id_prefix=prefix)


def _check_columns(schema: StructType, topic: str | None) -> None:
    types = {one.name: one.dataType.simpleString() for one in schema.fields}
    if "value" not in types:
        raise BadOption(f"there is no column value to write, only {', '.join(types) or 'none'}")
    if topic is None and "topic" not in types:
        raise BadOption("no topic: give the option topic, or the rows a column topic")
    for name, wanted in _TYPES.items():
        if name in types and types[name] not in wanted:
            raise BadOption(f"the column {name} is {types[name]}, not {' or '.join(wanted)}")
