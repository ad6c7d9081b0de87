"""Tests and outcomes as JSON, for the socket between ``headrace views test`` and a running ``headrace views run``."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.pipeline.view_tests.cases import ArchitectureOutcome, FoundRows, Outcome, Record, Step, ViewTest

Message = Mapping[str, Any]


def written_test(test: ViewTest) -> dict[str, Any]:
    """The test without its expected rows: only its records are needed to run it."""
    return {
        "view": test.view,
        "architectures": list(test.architectures),
        "steps": [[_written_record(record) for record in step.records] for step in test.steps],
    }


def read_test(values: Message) -> ViewTest:
    steps = tuple(Step("", tuple(_read_record(each) for each in records), None, None) for records in values["steps"])
    return ViewTest(Path(), "", str(values["view"]), steps, tuple(str(each) for each in values["architectures"]))


def written_outcome(outcome: Outcome) -> dict[str, Any]:
    return {
        "columns": _text(outcome.columns.serialize().to_pybytes()),
        "key": list(outcome.key),
        "architectures": [_written_architecture(each) for each in outcome.architectures],
        "batches": list(outcome.batches),
        "note": outcome.note,
        "seconds": outcome.seconds,
        "batch_error": outcome.batch_error,
    }


def read_outcome(values: Message) -> Outcome:
    import pyarrow as pa  # type: ignore[import-untyped]

    return Outcome(
        pa.ipc.read_schema(pa.py_buffer(_bytes(values["columns"]))),
        tuple(values["key"]),
        tuple(_read_architecture(each) for each in values["architectures"]),
        tuple(values["batches"]),
        values["note"],
        values["seconds"],
        values["batch_error"],
    )


def _written_record(record: Record) -> list[object]:
    headers = [[name, _optional_text(value)] for name, value in record.headers]
    place = [record.topic, record.partition, record.timestamp_ms]
    return [*place, _optional_text(record.key), _optional_text(record.value), headers]


def _read_record(values: list[Any]) -> Record:
    topic, partition, timestamp_ms, key, value, headers = values
    read = tuple((str(name), _optional_bytes(each)) for name, each in headers)
    return Record(str(topic), int(partition), int(timestamp_ms), _optional_bytes(key), _optional_bytes(value), read)


def _written_architecture(outcome: ArchitectureOutcome) -> dict[str, Any]:
    return {
        "architecture": outcome.architecture,
        "way": outcome.way,
        "skipped": outcome.skipped,
        "error": outcome.error,
        "steps": [_written_found(each) for each in outcome.steps],
        "after_batch": None if outcome.after_batch is None else _written_found(outcome.after_batch),
    }


def _read_architecture(values: Message) -> ArchitectureOutcome:
    after = values["after_batch"]
    return ArchitectureOutcome(
        values["architecture"],
        values["way"],
        values["skipped"],
        values["error"],
        tuple(_read_found(each) for each in values["steps"]),
        None if after is None else _read_found(after),
    )


def _written_found(found: FoundRows) -> dict[str, Any]:
    return {"rows": list(found.rows), "dead_letters": found.dead_letters}


def _read_found(values: Message) -> FoundRows:
    return FoundRows(values["rows"], int(values["dead_letters"]))


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _optional_text(value: bytes | None) -> str | None:
    return None if value is None else _text(value)


def _optional_bytes(text: str | None) -> bytes | None:
    return None if text is None else _bytes(text)
