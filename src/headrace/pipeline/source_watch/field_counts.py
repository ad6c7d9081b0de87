"""Counts which records of a topic have a value for each column, and decides that a column is missing.

A column may be NULL, so a record without it decodes. One such record means nothing. A column is missing if

* records had it before, and none of the last records has it. How many records that takes depends on how often records
  had it: with a share of 0.5 a hundred records, with a share of 0.01 two thousand. A column that one record in a
  thousand has is not missing because a few hundred records lack it;
* or none of 1,000 records has ever named it.

If the schema of each record is known exactly (Avro with a registry), ten records are enough.

A field that the schema does not name is reported when it is first seen, up to a number of fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from headrace.pipeline.serving.catalog_tables.schema_changes import Place, SchemaChange

#: At least this many records in a row must lack a column, if only records are known and not their schemas.
_ENOUGH = 100
_ENOUGH_IF_EXACT = 10
_ENOUGH_IF_NEVER = 1_000
#: If a record has a column with the probability p, then 20/p records in a row lack it with a probability of e^-20.
_SURPRISE = 20
#: The share of records that had a column is an estimate. This many records without the column are added.
_DOUBT = 100
#: Shares are measured over about this many records: older records count less and less.
_REMEMBERED = 20_000
_MAX_NEW_FIELDS = 20
_MAX_COLUMNS = 500


class Fields(NamedTuple):
    """The fields of one record.

    :ivar has_value: by the path of a column, whether the record has a value for it. A column inside of a struct that
        the record lacks is left out: the record says nothing about it.
    :ivar named: the columns that the record names, with a value or with null.
    :ivar new: the fields that the schema does not name.
    """

    has_value: Mapping[str, bool]
    named: frozenset[str]
    new: frozenset[str]


@dataclass
class ColumnCount:
    """
    :ivar looked: how many records could have had the column; ``had``: how many of them had a value.
    :ivar lacking: how many records in a row, the last ones, have no value; ``since``: the first of them.
    """

    looked: float = 0
    had: float = 0
    is_named: bool = False
    lacking: int = 0
    since: Place | None = None

    def add(self, place: Place, has_value: bool, is_named: bool) -> None:
        self.looked += 1
        self.is_named = self.is_named or is_named
        if has_value:
            self.had += 1
            self.lacking, self.since = 0, None
        else:
            self.lacking += 1
            self.since = self.since or place
        if self.looked - self.lacking > _REMEMBERED:
            self.looked, self.had = self.lacking + (self.looked - self.lacking) / 2, self.had / 2

    @property
    def share(self) -> float:
        """The part of the records that had the column before it was missing."""
        before = self.looked - self.lacking
        return self.had / before if before else 0.0

    def is_missing(self, *, is_exact: bool) -> bool:
        if not self.had:
            return not self.is_named and self.lacking >= (_ENOUGH_IF_EXACT if is_exact else _ENOUGH_IF_NEVER)
        if is_exact:
            return self.lacking >= _ENOUGH_IF_EXACT
        share = self.had / (self.looked - self.lacking + _DOUBT)
        return self.lacking >= max(_ENOUGH, _SURPRISE / share)


@dataclass
class FieldCounts:
    """The counts of one topic of a source.

    :param is_exact: whether the fields of a record are known from its schema.
    """

    source: str
    topic: str
    is_exact: bool
    columns: dict[str, ColumnCount] = field(default_factory=dict)
    new_fields: dict[str, Place] = field(default_factory=dict)

    def add(self, records: Iterable[tuple[Place, Fields]]) -> None:
        """Counts records, from the oldest to the newest."""
        for place, fields in records:
            for name, has_value in fields.has_value.items():
                count = self.columns.get(name)
                if count is None:
                    if len(self.columns) >= _MAX_COLUMNS:
                        continue
                    count = self.columns[name] = ColumnCount()
                count.add(place, has_value, name in fields.named)
            for name in sorted(fields.new - self.new_fields.keys()):
                if len(self.new_fields) < _MAX_NEW_FIELDS:
                    self.new_fields[name] = place

    def changes(self) -> list[SchemaChange]:
        """How the records differ from the schema now: missing columns, then new fields."""
        missing = [
            SchemaChange("missing", self.source, self.topic, name, each.since, each.lacking, round(each.share, 4))
            for name, each in self.columns.items()
            if each.since is not None and each.is_missing(is_exact=self.is_exact)
        ]
        return missing + [SchemaChange("new", self.source, self.topic, *each) for each in self.new_fields.items()]

    def as_dict(self) -> dict[str, object]:
        """The counts as JSON values."""
        return {
            "columns": {name: asdict(each) for name, each in self.columns.items()},
            "new": {name: asdict(each) for name, each in self.new_fields.items()},
        }

    def load(self, values: Mapping[str, Any]) -> None:
        """Continues from counts that ``as_dict`` returned."""
        for name, each in values["columns"].items():
            since = each["since"]
            self.columns[name] = ColumnCount(**each | {"since": Place(**since) if since else None})
        self.new_fields |= {name: Place(**each) for name, each in values["new"].items()}
