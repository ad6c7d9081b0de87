"""Staging tables: parts count once, the rows reach the table in one transaction, and crashes leave nothing behind."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import psycopg
import pyarrow as pa
import pytest

from headrace.pipeline.serving.database import Database
from headrace.pipeline.serving.errors import DatabaseUnreachable, ServingError
from headrace.pipeline.serving.postgresql import copy as postgresql_copy
from headrace.pipeline.serving.postgresql import staging as postgresql_staging
from headrace.pipeline.serving.postgresql.copy import StageCopy
from headrace.pipeline.serving.postgresql.staging import Stage, apply_stage, check_parts, create_stage
from headrace.pipeline.serving.sql_views import repoint_view
from headrace.pipeline.serving.tables import create_table, data_table, select_all

SCHEMA = pa.schema([("page", pa.string()), ("hits", pa.int64())])
TABLE = data_table("pages__v1", SCHEMA, ["page"])


class Shown:
    """A SQL view ``pages`` that shows the table, if it was created."""

    def __init__(self, connection, *, is_serving: bool = False) -> None:
        self._connection, self._is_serving = connection, is_serving
        self.calls: list[str] = []

    def lock(self) -> None:
        self.calls.append("lock")

    def repoint(self) -> None:
        from headrace.pipeline.serving.postgresql.dialect import replace_view

        self.calls.append("repoint")
        if self._is_serving:
            replace_view(self._connection, "pages", select_all(TABLE))


@pytest.fixture
def database(postgresql_url) -> Iterator[Database]:
    opened = Database(postgresql_url)
    with opened.begin() as connection:
        create_table(connection, TABLE)
    yield opened
    opened.close()


def batches(rows: dict[str, int]) -> list[pa.RecordBatch]:
    return pa.table({"page": list(rows), "hits": list(rows.values())}, schema=SCHEMA).to_batches(max_chunksize=3)


def copy_of(database: Database, stage: Stage, batch_id: int = 1) -> StageCopy:
    made = StageCopy(database.login(), stage.name, SCHEMA, ("page",), batch_id, stage.is_ordered)
    return pickle.loads(pickle.dumps(made))  # as Spark sends it


def staged(database: Database, *parts: dict[str, int], batch_id: int = 1, is_logged=True, is_ordered=False) -> Stage:
    stage = create_stage(database, TABLE, batch_id, is_ordered=is_ordered, is_logged=is_logged)
    for number, rows in enumerate(parts):
        copy_of(database, stage, batch_id).copy(number, batches(rows))
    return stage


def commit(database: Database, stage: Stage, *parts: dict[str, int]) -> Shown:
    count = sum(map(len, parts))
    with database.begin() as connection:
        shown = Shown(connection)
        check_parts(connection, stage, len(parts), count)
        apply_stage(connection, stage, count, shown)
    return shown


def rows_of(database: Database) -> dict[str, tuple[int, int]]:
    with database.read() as connection:
        found = connection.exec_driver_sql("SELECT page, hits, _batch_id, _key FROM pages__v1").fetchall()
    assert all(key == f'["{page}"]' for page, _, _, key in found)
    return {page: (hits, batch_id) for page, hits, batch_id, _ in found}


# --------------------------------------------------------------------------------------------------------- what counts


@pytest.mark.parametrize("is_logged", [True, False])
def test_rows_of_all_parts_reach_the_table(database, is_logged):
    one, two = {f"p{n}": n for n in range(8)}, {f"q{n}": n for n in range(5)}
    shown = commit(database, staged(database, one, two, is_logged=is_logged), one, two)
    assert rows_of(database) == {page: (hits, 1) for page, hits in (one | two).items()}
    assert shown.calls == (["lock", "repoint"] if is_logged else [])  # a table that is not logged is never shown
    changed = {"p0": 100, "new": 1}
    commit(database, staged(database, changed, batch_id=2, is_logged=is_logged), changed)
    expected = {page: (hits, 1) for page, hits in (one | two).items()} | {"p0": (100, 2), "new": (1, 2)}
    assert rows_of(database) == expected


@pytest.mark.parametrize(("changed", "calls"), [(3, []), (10, ["lock", "repoint"])])
def test_a_table_is_replaced_if_most_of_its_rows_change(database, changed, calls):
    old = {f"p{n:02d}": n for n in range(20)}
    commit(database, staged(database, old), old)
    new = {f"p{n:02d}": n + 1000 for n in range(changed)}
    shown = commit(database, staged(database, new, batch_id=2), new)
    assert shown.calls == calls
    assert rows_of(database) == {page: (hits, 1) for page, hits in old.items()} | {k: (v, 2) for k, v in new.items()}
    with database.begin() as connection:  # the key of the new table works
        database.upsert(connection, TABLE, pa.table({"page": ["p00"], "hits": [7]}), batch_id=3)
    assert rows_of(database)["p00"] == (7, 3)


def test_a_part_that_is_copied_again_counts_once(database):
    rows = {"a": 1, "b": 2}
    stage = staged(database, rows)
    assert copy_of(database, stage).copy(0, batches(rows)) == 2  # the first try was committed, and nobody heard of it
    commit(database, stage, rows)
    assert rows_of(database) == {"a": (1, 1), "b": (2, 1)}


def test_a_part_that_fails_leaves_nothing(database):
    stage = staged(database)

    def breaks() -> Iterator[pa.RecordBatch]:
        yield from batches({f"p{n}": n for n in range(10)})
        raise OSError("the input of the task is gone")

    with pytest.raises(OSError, match="is gone"):
        copy_of(database, stage).copy(0, breaks())
    copy_of(database, stage).copy(0, batches({"a": 1}))
    commit(database, stage, {"a": 1})
    assert rows_of(database) == {"a": (1, 1)}


def test_of_rows_with_the_same_key_the_last_one_counts(database):
    stage = create_stage(database, TABLE, 1, is_ordered=True, is_logged=False)
    copy = copy_of(database, stage)
    copy.copy(1, [pa.record_batch({"page": ["b", "b"], "hits": [3, 4]}, SCHEMA)])
    copy.copy(0, [pa.record_batch({"page": ["a", "b", "a"], "hits": [1, 9, 2]}, SCHEMA)])
    with database.begin() as connection:
        check_parts(connection, stage, 2, 5)
        apply_stage(connection, stage, 5, Shown(connection))
    assert rows_of(database) == {"a": (2, 1), "b": (4, 1)}


def test_keys_that_only_spark_distinguishes_are_merged(database):
    stage = create_stage(database, TABLE, 1, is_ordered=False, is_logged=True)
    for part, raw in enumerate((b"x\xff", b"x\xfe")):  # neither is UTF-8; both are stored with U+FFFD
        page = pa.array([raw], pa.binary()).view(pa.string())
        copy_of(database, stage).copy(part, [pa.record_batch([page, pa.array([part])], schema=SCHEMA)])
    with database.begin() as connection:
        apply_stage(connection, stage, 2, Shown(connection))
    assert list(rows_of(database)) == ["x\ufffd"]


# ------------------------------------------------------------------------------------------------- views and additions


def test_a_view_that_serves_follows_its_table(database):
    with database.begin() as connection:
        repoint_view(connection, "pages", select_all(TABLE))
        connection.exec_driver_sql("CREATE VIEW of_a_user AS SELECT sum(hits) AS total FROM pages")
    rows = {"a": 1, "b": 2}
    stage = staged(database, rows)
    with database.begin() as connection:
        apply_stage(connection, stage, 2, Shown(connection, is_serving=True))
    with database.read() as connection:
        assert connection.exec_driver_sql("SELECT * FROM pages ORDER BY page").fetchall() == [("a", 1), ("b", 2)]
        assert connection.exec_driver_sql("SELECT total FROM of_a_user").scalar_one() == 3


@pytest.mark.parametrize(
    "addition",
    [
        "CREATE INDEX of_a_user ON pages__v1 (hits)",
        "GRANT SELECT ON pages__v1 TO PUBLIC",
        "CREATE VIEW of_a_user AS SELECT * FROM pages__v1",
    ],
)
def test_what_a_user_added_to_the_table_stays(database, addition):
    with database.begin() as connection:
        connection.exec_driver_sql(addition)
        before = connection.exec_driver_sql("SELECT 'pages__v1'::regclass::oid").scalar_one()
    commit(database, staged(database, {"a": 1}), {"a": 1})
    with database.read() as connection:
        assert connection.exec_driver_sql("SELECT 'pages__v1'::regclass::oid").scalar_one() == before
    assert rows_of(database) == {"a": (1, 1)}


def test_readers_that_stay_do_not_stop_the_writer(database, monkeypatch):
    monkeypatch.setattr(postgresql_staging, "_RENAME_WAIT_MS", 100)
    stage = staged(database, {"a": 1})
    with database.read() as reader:
        reader.exec_driver_sql("SELECT * FROM pages__v1").fetchall()
        commit(database, stage, {"a": 1})
        assert reader.exec_driver_sql("SELECT * FROM pages__v1").fetchall() == []  # still its own moment
    assert rows_of(database) == {"a": (1, 1)}


# -------------------------------------------------------------------------------------------------------------- crashes


def test_a_crash_before_the_commit_changes_nothing(database):
    rows = {"a": 1}
    commit(database, staged(database, rows), rows)
    stage = staged(database, {"a": 2, "b": 2}, batch_id=2)

    def commits_not() -> None:
        with database.begin() as connection:
            apply_stage(connection, stage, 2, Shown(connection))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        commits_not()
    assert rows_of(database) == {"a": (1, 1)}
    assert len(postgresql_staging.stages(database, "pages__v1")) == 2, "the stage and its list of parts are left"
    again = staged(database, {"a": 2, "b": 2}, batch_id=2)
    assert all(name.startswith(again.name) for name in postgresql_staging.stages(database, "pages__v1"))
    commit(database, again, {"a": 2, "b": 2})
    assert rows_of(database) == {"a": (2, 2), "b": (2, 2)}
    database.drop_stages("pages__v1")
    assert postgresql_staging.stages(database, "pages__v1") == []


def test_a_task_of_an_earlier_try_cannot_add_rows(database):
    earlier = staged(database)
    staged(database, {"a": 1})  # drops the earlier one
    with pytest.raises(ServingError, match=r"does not exist.*SQLSTATE: 42P01"):
        copy_of(database, earlier).copy(0, batches({"b": 1}))


def test_a_stage_that_a_task_still_writes_to_is_dropped_later(database, monkeypatch):
    monkeypatch.setattr(postgresql_staging, "_DROP_WAIT_MS", 50)
    stage = staged(database)
    with psycopg.connect(**database.login()) as zombie:
        zombie.execute(f"LOCK TABLE {stage.name} IN ROW EXCLUSIVE MODE".encode())
        database.drop_stages("pages__v1")
        assert postgresql_staging.stages(database, "pages__v1") == [stage.name]
    database.drop_stages("pages__v1")
    assert postgresql_staging.stages(database, "pages__v1") == []


def test_rows_that_a_crash_of_the_database_has_lost_are_noticed(mortal_postgresql):
    database = Database(mortal_postgresql.url)
    with database.begin() as connection:
        create_table(connection, TABLE)
    stage = staged(database, {"a": 1}, is_logged=False)
    mortal_postgresql.kill()
    mortal_postgresql.start()
    with pytest.raises(DatabaseUnreachable, match="has 0 rows of 0 tasks, but 1 tasks have copied 1 rows"):
        commit(database, stage, {"a": 1})
    database.close()


# ---------------------------------------------------------------------------------------------------------- connections


def test_a_task_waits_for_a_free_connection(database, monkeypatch):
    stage = create_stage(database, TABLE, 1, is_ordered=False, is_logged=False)
    tries: list[str] = []
    connect = psycopg.connect

    def full_at_first(**login):
        tries.append("try")
        if len(tries) < 3:
            raise psycopg.OperationalError("FATAL:  sorry, too many clients already")
        return connect(**login)

    monkeypatch.setattr(postgresql_copy.psycopg, "connect", full_at_first)
    monkeypatch.setattr(postgresql_copy.time, "sleep", lambda _: None)
    assert copy_of(database, stage).copy(0, batches({"a": 1})) == 1
    assert len(tries) == 3


def test_a_database_that_does_not_answer_is_named_without_its_password(database):
    copy = StageCopy(
        {"host": "127.0.0.1", "port": 1, "user": "u", "password": "hush", "dbname": "d"}, "stage", SCHEMA, (), 1
    )
    with pytest.raises(DatabaseUnreachable, match=postgresql_copy.NOT_CONNECTED) as caught:
        copy.copy(0, [])
    assert "hush" not in f"{caught.value}{copy}{copy!r}"
