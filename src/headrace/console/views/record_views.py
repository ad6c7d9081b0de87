"""Finds the views that a record counts in, and the rows of its keys.

A record counts in the answer of a version if its offset is before the offset that the answer is as of. Which row it
touched is decided by the query. The console looks for the row whose key is equal to the fields of the record with the
names of the key's columns: of the value, and else of the key. A query that computes its key has no such row.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from headrace.console.problems import NotFound
from headrace.console.views.answers import key_columns, row_with_key
from headrace.console.views.model import RecordView, Status, VersionRow
from headrace.console.views.opened import Opened
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.serving.errors import QueryError

_MOST_VIEWS = 20
_LONGEST_KEY = 5_000
Place = tuple[str, int, int]
_Scalar = str | int | float | bool | None


def views_of_record(
    opened: Opened, status: Status, place: Place, documents: Collection[object], masks: Collection[str]
) -> tuple[RecordView, ...]:
    """The serving versions that read the topic of a record.

    :param place: topic, partition and offset of the record.
    :param documents: what the value and the key of the record contain, with masks applied.
    """
    topic, partition, offset = place
    found: list[RecordView] = []
    for view in status.views:
        serving = view.serving
        if serving is None or len(found) >= _MOST_VIEWS or not _reads(opened, serving, topic):
            continue
        as_of = next((at.offset for at in serving.offsets if (at.topic, at.partition) == (topic, partition)), None)
        is_counted = as_of is not None and offset < as_of
        key, reason = _row(opened, serving, documents, masks)
        found.append(RecordView(view.name, serving.version, is_counted, as_of, key, reason))
    return tuple(found)


def _reads(opened: Opened, version: VersionRow, topic: str) -> bool:
    definition = ViewDefinition.from_dict(opened.here.catalog.version(version.view, version.version).definition)
    named = {name for source in definition.inputs for name in source.topics}
    return topic in named or any(at.topic == topic for at in version.offsets)


def _row(opened: Opened, version: VersionRow, documents: Collection[object], masks: Collection[str]) -> tuple[str, str]:
    """The key of the row as JSON, and why there is none; one of them is empty."""
    columns = key_columns(opened, version.view, version.version)
    if not columns:
        return "", "the view has no key"
    if {each.lower() for each in columns} & {each.lower() for each in masks}:
        return "", "a column of the key is hidden"
    values: dict[str, _Scalar] = {}
    for column in columns:
        holder = next((each for each in documents if isinstance(each, Mapping) and column in each), None)
        if holder is None or not isinstance(holder[column], _Scalar):
            return "", f"the record has no field {column}, which is a column of the key"
        values[column] = holder[column]
    key = json.dumps(values, ensure_ascii=False)
    if len(key) > _LONGEST_KEY or not all(map(_is_plain, values.values())):
        return "", "the key is too long, or contains characters that a database cannot store"
    try:
        row_with_key(opened, version.view, key)
    except NotFound:
        return "", f"there is no row with the key {key[:500]}"
    except QueryError as error:
        return "", str(error)
    return key, ""


def _is_plain(value: _Scalar) -> bool:
    """Whether a value can be a part of a statement: JSON may contain NUL and halves of surrogate pairs."""
    return not isinstance(value, str) or not any(each == "\0" or "\ud800" <= each <= "\udfff" for each in value)
