"""The options and columns of the sink: those of Spark's Kafka connector, and one more.

::

    kafka.bootstrap.servers     required; other kafka.* are options of Headrace's producer
    topic                       the topic of all rows; without it each row has its topic in the column topic
    transactionalIdPrefix       Headrace's own: exactly once, with transactions whose ids begin so (exactly_once.py)
    workerLogin                 Headrace's own: how tasks log in, token, any or password (spark/worker_login.py)

    value       binary or string    required
    key         binary or string
    topic       string
    partition   int
    headers     array<struct<key: string, value: binary>>
    timestamp   timestamp, or bigint milliseconds; Spark's connector as of 3.5 uses the clock of the producer instead

Other columns are ignored, as in the connector. So is a column timestamp of another type: it is the user's own column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headrace.client.config import ProducerConfig
from headrace.pipeline.spark.options import BadOption, OptionReader
from headrace.pipeline.spark.worker_login import WorkerLogin, parse_worker_login, without_login

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_NAMES = ("topic", "transactionalIdPrefix", "workerLogin")
#: Options of Spark itself, which it also passes to sinks.
_SPARK_OPTIONS = ("checkpointlocation", "queryname", "path")
#: An option of the connector that has no effect on its writer: a column headers is always written.
_IGNORED = ("includeheaders",)
_REFUSED = {
    "key.serializer": "keys are binary or string columns",
    "value.serializer": "values are binary or string columns",
    "transactional.id": "use transactionalIdPrefix, because each task needs its own id",
}
_TYPES = {
    "value": ("binary", "string"),
    "key": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int", "bigint", "smallint", "tinyint"),
    "headers": ("array<struct<key:string,value:binary>>",),
}
#: The default maximum of the broker. A driver that is down for longer cannot commit what its tasks have written.
_TRANSACTION_TIMEOUT_MS = "900000"


@dataclass(frozen=True, kw_only=True)
class SinkOptions:
    #: The options of Headrace's producer, by Kafka's names. Some are secrets.
    client: Mapping[str, str] = field(repr=False)
    topic: str | None = None
    transactional_id_prefix: str | None = None
    worker_login: WorkerLogin = WorkerLogin.TOKEN

    def for_workers(self, login: Mapping[str, str]) -> SinkOptions:
        """The same options with another login."""
        return replace(self, client={**without_login(self.client), **login})

    @classmethod
    def parse(cls, given: Mapping[str, str], schema: StructType) -> SinkOptions:
        """
        :raises BadOption: with the name of the option or column, and what it should be.
        """
        options = OptionReader(given, _NAMES, ignored=(*_SPARK_OPTIONS, *_IGNORED))
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
        return cls(client=client, topic=topic, transactional_id_prefix=prefix, worker_login=parse_worker_login(options))


def _check_columns(schema: StructType, topic: str | None) -> None:
    types = {one.name: one.dataType.simpleString() for one in schema.fields}
    if "value" not in types:
        raise BadOption(f"there is no column value to write; the columns are: {', '.join(types) or 'none'}")
    if topic is None and "topic" not in types:
        raise BadOption("no topic: set the option topic, or add a column topic")
    for name, wanted in _TYPES.items():
        if name in types and types[name] not in wanted:
            raise BadOption(f"the column {name} has the type {types[name]}, not {' or '.join(wanted)}: cast it")
