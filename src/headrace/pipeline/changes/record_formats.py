"""Encodes the keys and rows of a published view as records: JSON, or Avro with a schema registry.

JSON has the values of answers to queries (``serving.queries.formats``): ``{"country":"DE","total":12}``, and the key
``{"country":"DE"}``. A removed row is a tombstone: its key, and no value.
"""

from __future__ import annotations

from typing import Protocol

from headrace.pipeline.changes.outbox import Followed
from headrace.pipeline.changes.row_values import Row, row_text
from headrace.pipeline.project.definition import Publish


class RecordFormat(Protocol):
    def key(self, key: Row) -> bytes: ...

    def value(self, row: Row) -> bytes: ...


class JsonFormat:
    def key(self, key: Row) -> bytes:
        return row_text(key).encode()

    def value(self, row: Row) -> bytes:
        return row_text(row).encode()


def format_of(publish: Publish, state: Followed) -> RecordFormat:
    """The format of a view's records.

    :raises RegistryUnavailable: if the schema registry does not answer.
    """
    if publish.format == "json":
        return JsonFormat()
    from headrace.pipeline.changes.avro_records import AvroFormat

    return AvroFormat.of(publish, state)
