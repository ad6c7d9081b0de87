"""A folder with a Delta table has the rows of the view as of the offsets that each snapshot names, whatever dies."""

import datetime
import json
import threading
from decimal import Decimal
from pathlib import Path
from typing import ClassVar

import polars
import pyarrow as pa
import pytest
from changes_harness import FakeView
from deltalake import DeltaTable, write_deltalake

from headrace.pipeline.export import exporter as exporter_module
from headrace.pipeline.export.delta_folder import DeltaFolder, ExportFailed, ExportRefused
from headrace.pipeline.export.export_state import export_notes
from headrace.pipeline.export.export_thread import ExportThread
from headrace.pipeline.export.exporter import Exporter
from headrace.pipeline.project.definition import Export
from headrace.pipeline.serving.change_tables import EXPORTED, VERSION_SCHEMAS
from headrace.pipeline.serving.database import Database
from headrace.testing.clock import ManualClock

UTC = datetime.UTC
NOON = datetime.datetime(2026, 11, 16, 12, 0, 0, 250)


class Exported:
    """A view, its folder and the exporter of the process that runs now."""

    def __init__(self, database: Database, folder: Path, schema: pa.Schema | None = None) -> None:
        self.view = FakeView(database) if schema is None else FakeView(database, schema, None)
        self.folder, self.clock = folder, ManualClock()
        self.restart()

    def restart(self) -> None:
        """Another process takes over, without the end of the one before."""
        self.exporter = Exporter(self.view.database, self.clock, self.folder, "pages", Export("exports/pages"))

    @property
    def path(self) -> Path:
        return self.folder / "exports" / "pages"

    def export(self, rows: list[tuple[object, ...]], **options: bool) -> bool:
        self.view.commit(rows, **options)
        return self.exporter.run()

    def table(self) -> DeltaTable:
        return DeltaTable(self.path)

    def rows(self) -> list[tuple[object, ...]]:
        return sorted(polars.read_delta(str(self.path)).rows())

    def names(self) -> list[dict[str, object]]:
        """What each commit says, the oldest first."""
        return [json.loads(each["userMetadata"]) for each in reversed(self.table().history())]


@pytest.fixture
def exported(sqlite_url, tmp_path):
    database = Database(sqlite_url)
    yield Exported(database, tmp_path)
    database.close()


def test_each_snapshot_has_all_rows_and_names_view_version_and_offsets(exported):
    assert exported.export([("home", 1), ("shop", 2)]) is True
    assert exported.rows() == [("home", 1), ("shop", 2)]
    assert exported.export([("home", 5)]) is True
    assert exported.rows() == [("home", 5)]
    assert [(each["view"], each["version"], each["offsets"]) for each in exported.names()] == [
        ("pages", 1, {"clicks": {"0": 1}}),
        ("pages", 1, {"clicks": {"0": 2}}),
    ]
    assert polars.read_delta(str(exported.path), version=0).height == 2, "the snapshot before can still be read"
    assert exported.table().metadata().name == "pages"


def test_equal_offsets_are_exported_once(exported):
    exported.export([("home", 1)])
    assert exported.exporter.run() is False
    exported.restart()
    assert exported.exporter.run() is False
    assert exported.table().version() == 0


def test_nothing_is_exported_until_a_version_serves(exported):
    assert exported.exporter.run() is False
    assert not exported.path.exists()


def test_a_view_without_rows_is_a_table_without_rows(exported):
    exported.export([])
    assert exported.rows() == []
    exported.export([("home", 1)])
    exported.export([])
    assert exported.rows() == []
    assert exported.table().schema().to_arrow().names == ["page", "clicks"]


def test_a_switch_of_versions_replaces_columns_and_rows_in_one_snapshot(exported):
    exported.export([("home", 1)])
    exported.view.add_version(pa.schema([("page", pa.string()), ("at", pa.timestamp("us")), ("n", pa.int32())]))
    assert exported.export([("tea", NOON, 3)]) is False, "the new version does not serve yet"
    assert exported.export([("tea", NOON, 3)], switch=True) is True
    assert exported.rows() == [("tea", NOON, 3)]
    assert exported.names()[-1]["version"] == 2
    assert polars.read_delta(str(exported.path), version=0).rows() == [("home", 1)]


def test_rows_and_offsets_are_of_the_same_moment(exported, monkeypatch):
    """A commit of the view while its rows are read is no part of the snapshot."""
    exported.view.commit([("home", 1)])
    real = DeltaFolder.write

    def write(folder, schema, batches, names):
        exported.view.commit([("home", 2), ("shop", 2)])
        return real(folder, schema, batches, names)

    monkeypatch.setattr(DeltaFolder, "write", write)
    exported.exporter.run()
    assert (exported.rows(), exported.names()[-1]["offsets"]) == ([("home", 1)], {"clicks": {"0": 1}})
    monkeypatch.undo()
    exported.exporter.run()
    assert (exported.rows(), exported.names()[-1]["offsets"]) == ([("home", 2), ("shop", 2)], {"clicks": {"0": 2}})


_CRASHES = ["while rows are read", "before the commit", "after the commit", "after the line in status"]


@pytest.mark.parametrize("crash", _CRASHES)
@pytest.mark.parametrize("when", ["first snapshot", "second snapshot"])
def test_a_crash_leaves_the_old_or_the_new_snapshot(exported, monkeypatch, crash, when):
    old = [("home", 1)]
    if when == "second snapshot":
        exported.export(old)
    real_write, real_store = DeltaFolder.write, exporter_module.store_snapshot

    def write(folder, schema, batches, names):
        if crash == "while rows are read":
            real_write(folder, schema, _then_dies(batches), names)
        if crash == "before the commit":
            (folder.path / "_delta_log").mkdir(parents=True, exist_ok=True)
            (folder.path / "part-00000-of-a-crash.snappy.parquet").write_bytes(b"PAR1")
            raise SystemExit
        return real_write(folder, schema, batches, names)

    def store(*arguments):
        if crash == "after the line in status":
            real_store(*arguments)
        raise SystemExit

    monkeypatch.setattr(DeltaFolder, "write", write)
    monkeypatch.setattr(exporter_module, "store_snapshot", store)
    exported.view.commit([("home", 2), ("shop", 2)])
    with pytest.raises((SystemExit, OSError)):
        exported.exporter.run()
    monkeypatch.undo()
    new, is_new = [("home", 2), ("shop", 2)], crash.startswith("after")
    if is_new or when == "second snapshot":
        assert exported.rows() == (new if is_new else old)
    exported.restart()
    assert exported.exporter.run() is not is_new, "what is there already is not written again"
    assert exported.rows() == new
    assert exported.names()[-1]["offsets"] == {"clicks": {"0": exported.view.batch}}


def _then_dies(batches):
    yield from batches
    raise OSError("the database is gone")


def test_the_error_of_the_database_is_told_and_not_that_of_the_library(database, tmp_path, monkeypatch):
    exported = Exported(database, tmp_path)
    exported.view.commit([("home", 1)])
    real = DeltaFolder.write
    monkeypatch.setattr(
        DeltaFolder, "write", lambda folder, schema, batches, names: real(folder, schema, _then_dies(batches), names)
    )
    with pytest.raises(OSError, match=r"^the database is gone$"):
        exported.exporter.run()
    monkeypatch.undo()
    assert exported.exporter.run() is True, "the connection can be used again"


def test_a_folder_of_somebody_else_is_refused_and_left_as_it_is(exported):
    exported.path.mkdir(parents=True)
    (exported.path / "notes.txt").write_text("mine")
    with pytest.raises(ExportRefused, match="has files, and no Delta table: export to a folder of its own"):
        exported.export([("home", 1)])
    (exported.path / "notes.txt").unlink()
    write_deltalake(exported.path, pa.table({"mine": [1]}))
    with pytest.raises(ExportRefused, match="a Delta table that was not made for the view pages"):
        exported.exporter.run()
    assert exported.rows() == [(1,)]


def test_rows_of_somebody_else_in_the_table_are_replaced_after_a_restart(exported):
    exported.export([("home", 1)])
    write_deltalake(exported.path, pa.table({"page": ["theirs"], "clicks": [9]}), mode="append")
    exported.restart()
    assert exported.exporter.run() is True
    assert exported.rows() == [("home", 1)]
    exported.table().optimize.compact()
    exported.restart()
    assert exported.exporter.run() is False, "compacting leaves the rows as they are"


def test_old_files_go_after_their_time_and_every_commit_names_its_offsets(exported, monkeypatch):
    """The library takes the time from the system, so files that are too young for it are kept."""
    folder = DeltaFolder(exported.path, "pages", 1)
    for count in range(3):
        exported.export([("home", count)])
    before = len(list(exported.path.glob("*.parquet")))
    assert (before, folder.clean(exported.names()[-1])) == (3, 0)
    monkeypatch.setattr(folder, "_keep_hours", 0)
    assert folder.clean(exported.names()[-1]) == 2
    assert len(list(exported.path.glob("*.parquet"))) == 1
    assert exported.rows() == [("home", 2)]
    offsets = [each["offsets"] for each in exported.names()]
    assert offsets[-1] == {"clicks": {"0": 3}}
    assert len(offsets) == len(exported.table().history())
    exported.restart()
    assert exported.exporter.run() is False
    exported.export([("home", 7)])
    assert exported.rows() == [("home", 7)]


def test_files_of_a_crash_go_when_they_are_old(exported):
    import os
    import time

    exported.export([("home", 1)])
    lost = exported.path / "part-00000-of-a-crash.snappy.parquet"
    lost.write_bytes(b"PAR1")
    folder = DeltaFolder(exported.path, "pages", 1)
    assert folder.clean(exported.names()[-1]) == 0
    two_hours_ago = time.time() - 7200
    os.utime(lost, (two_hours_ago, two_hours_ago))
    assert folder.clean(exported.names()[-1]) == 1
    assert not lost.exists()


def test_cleaning_is_done_every_quarter_of_the_time(exported, monkeypatch):
    cleaned = []
    monkeypatch.setattr(DeltaFolder, "clean", lambda folder, names: cleaned.append(names["offsets"]))
    exported.export([("home", 1)])
    exported.clock.advance(899_000)
    exported.export([("home", 2)])
    assert cleaned == []
    exported.clock.advance(1_000)
    exported.export([("home", 3)])
    exported.export([("home", 4)])
    assert cleaned == [{"clicks": {"0": 3}}]


def test_a_version_of_an_earlier_release_is_an_error_with_a_next_step(exported):
    with exported.view.database.begin() as connection:
        connection.execute(VERSION_SCHEMAS.delete())
    with pytest.raises(Exception, match="are not stored: run 'headrace views switch pages --restart'"):
        exported.export([("home", 1)])


def test_a_folder_that_cannot_be_written_fails_and_the_table_stays(exported):
    exported.export([("home", 1)])
    log = exported.path / "_delta_log" / "00000000000000000001.json"
    log.mkdir()
    with pytest.raises(ExportFailed, match="cannot write to"):
        exported.export([("home", 2)])
    assert [row["clicks"] for row in DeltaTable(exported.path, version=0).to_pyarrow_table().to_pylist()] == [1]


POINT = pa.struct([("x", pa.int32()), ("at", pa.timestamp("us", "UTC"))])
TYPES = {
    "boolean": (pa.bool_(), [True, False]),
    "byte": (pa.int8(), [-128, 127]),
    "short": (pa.int16(), [-(2**15), 1]),
    "integer": (pa.int32(), [-(2**31), 1]),
    "long": (pa.int64(), [-(2**63), 2**63 - 1]),
    "float": (pa.float32(), [1.5, float("inf")]),
    "double": (pa.float64(), [0.1, float("-inf")]),
    "decimal(12,3)": (pa.decimal128(12, 3), [Decimal("1.500"), Decimal("-123456789.123")]),
    "string": (pa.string(), ["q\"uo'te\\", "ünï ☃ 𝄞\r\n%s"]),
    "binary": (pa.binary(), [b"", b"\x00\xff\\"]),
    "date": (pa.date32(), [datetime.date(1, 1, 1), datetime.date(2026, 11, 16)]),
    "timestamp_ntz": (pa.timestamp("us"), [NOON, NOON.replace(microsecond=0)]),
    "timestamp": (pa.timestamp("us", "UTC"), [NOON.replace(tzinfo=UTC), None]),
    "struct": (POINT, [{"x": 1, "at": NOON.replace(tzinfo=UTC)}, {"x": None, "at": None}]),
    "array": (pa.list_(pa.decimal128(9, 2)), [[], [Decimal("1.25"), None]]),
    "map": (pa.map_(pa.string(), pa.int64()), [[], [("a", 1), ("b", None)]]),
}


@pytest.mark.parametrize("name", TYPES)
def test_a_column_keeps_its_type_and_values(database, tmp_path, name):
    kind, values = TYPES[name]
    exported = Exported(database, tmp_path, pa.schema([("n", pa.int64()), ("value", kind)]))
    exported.export(list(enumerate([*values, None])))
    found = exported.table().to_pyarrow_table().sort_by("n")
    assert found.column("value").to_pylist() == [*values, None]
    declared = exported.table().schema().to_json()
    assert name in declared, declared


def test_types_that_delta_does_not_have(database, tmp_path):
    day = datetime.timedelta(days=1)
    schema = pa.schema([("d", pa.duration("us")), ("t", pa.time64("us")), ("n", pa.null()), ("l", pa.list_(pa.null()))])
    exported = Exported(database, tmp_path, schema)
    exported.export([(day, datetime.time(8, 30), None, [None])])
    (row,) = exported.table().to_pyarrow_table().to_pylist()
    assert row == {"d": 86_400_000_000, "t": "08:30:00.000000", "n": None, "l": "[null]"}


def test_nan_is_what_the_view_has(database, tmp_path):
    exported = Exported(database, tmp_path, pa.schema([("x", pa.float64())]))
    exported.export([(float("nan"),)])
    (row,) = exported.table().to_pyarrow_table().to_pylist()
    assert str(row["x"]) == ("None" if database.is_sqlite else "nan"), "SQLite stores NaN as NULL"


def test_decimals_of_an_expression_stay_exact_in_postgresql(postgresql_url, tmp_path):
    digits = Decimal("12345678901234567890.123456789")
    database = Database(postgresql_url)
    exported = Exported(database, tmp_path, pa.schema([("x", pa.decimal128(38, 9))]))
    exported.view.commit([(digits,)])
    with database.begin() as connection:  # a Lambda view is an expression over two tables
        connection.exec_driver_sql("DROP VIEW pages")
        connection.exec_driver_sql('CREATE VIEW pages AS SELECT x + 0 AS x FROM "pages__v1"')
    exported.exporter.run()
    assert exported.table().to_pyarrow_table().to_pylist() == [{"x": digits}]
    database.close()


# ------------------------------------------------------------------------------------------------------------ thread


class DefinedView(FakeView):
    """A view whose definition says where it is exported."""

    export: ClassVar = {"path": "exports/pages", "every_ms": 60_000, "keep_hours": 1}

    def definition(self):
        from headrace.pipeline.project.decode import Decode, FileText
        from headrace.pipeline.project.definition import ViewDefinition

        query = FileText("pages.sql", "SELECT 1")
        return ViewDefinition("pages", ("clicks",), "", "kappa", query, Decode()).as_dict() | {"export": self.export}


@pytest.fixture
def thread(sqlite_url, tmp_path):
    database = Database(sqlite_url)
    view = DefinedView(database)
    yield ExportThread(database, view.catalog, ManualClock(), tmp_path), view, tmp_path / "exports" / "pages"
    database.close()


def test_a_view_is_exported_as_its_definition_says_and_no_more_often(thread):
    exports, view, path = thread
    view.commit([("home", 1)])
    exports.export_all(threading.Event())
    view.commit([("home", 2)])
    exports.export_all(threading.Event())
    assert DeltaTable(path).version() == 0, "a minute has not passed"
    assert exports.run_once() == []
    assert DeltaTable(path).version() == 1
    (note,) = export_notes(view.database, {"pages": "exports/pages"})
    assert note.startswith("pages: exported to exports/pages at ")
    assert note.endswith(": snapshot 1, 1 rows, v1 as of clicks 0:2")
    assert export_notes(view.database, {"another": "exports/pages"}) == []
    assert export_notes(view.database, {"pages": "exports/elsewhere"}) == []


def test_a_failure_is_logged_once_and_shown_and_the_table_is_written_later(thread, caplog):
    exports, view, path = thread
    path.parent.mkdir()
    path.write_text("a file")
    view.commit([("home", 1)])
    assert exports.run_once() == ["exporting pages"]
    assert exports.run_once() == ["exporting pages"]
    assert len([each for each in caplog.records if each.levelname == "WARNING"]) == 1
    (note,) = export_notes(view.database, {"pages": "exports/pages"})
    assert "exporting to exports/pages fails and is tried again: " in note
    path.unlink()
    exports.export_all(threading.Event())
    assert not path.exists(), "it is tried again after ten seconds"
    assert exports.run_once() == []
    (note,) = export_notes(view.database, {"pages": "exports/pages"})
    assert "snapshot 0, 1 rows" in note


def test_a_view_that_is_dropped_leaves_its_table(thread):
    exports, view, path = thread
    view.commit([("home", 1)])
    exports.run_once()
    with view.database.begin() as connection:
        view.catalog.retire_view(connection, "pages")
    assert exports.run_once() == []
    with view.database.begin() as connection:
        view.catalog.remove_view(connection, "pages")
        assert connection.execute(EXPORTED.select()).fetchall() == []
    assert polars.read_delta(str(path)).rows() == [("home", 1)]
