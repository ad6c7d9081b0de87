"""Large answers: Arrow with its types, CSV, pages of one snapshot, and bounds of files."""

import datetime
import io
import json
from decimal import Decimal

import pyarrow as pa
import pytest

from headrace.pipeline.serving.catalog import Catalog, Progress, VersionEvent
from headrace.pipeline.serving.errors import AnswerTooLarge, NotReadOnly, PageGone, QueryError, QueryTimeout, ServerBusy
from headrace.pipeline.serving.queries.large_answers import PAGES_KEPT_MS, LargeAnswers
from headrace.pipeline.serving.queries.query import QueryService
from headrace.pipeline.serving.queries.spool import Spool
from headrace.pipeline.serving.tables import create_table, data_table, select_all
from headrace.testing import ManualClock

UTC = datetime.UTC
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int16()),
        ("flag", pa.bool_()),
        ("ratio", pa.float64()),
        ("price", pa.decimal128(12, 2)),
        ("name", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("at_utc", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
    ]
)
ROWS = [
    (
        1, 7, True, 0.5, Decimal("1.10"), 'a,"b"\nc', b"\x00\xff", datetime.date(2026, 1, 2),
        datetime.datetime(2026, 1, 2, 3, 4, 5), datetime.datetime(2026, 1, 2, 3, 4, 5, 600, UTC), ["x", "ü"],
    ),
    (2, None, None, None, None, None, None, None, None, None, None),
    (
        3, -1, False, 1e300, Decimal("-3"), "", b"", datetime.date(1, 1, 1),
        datetime.datetime(9999, 12, 31, 23, 59, 59, 999999), datetime.datetime(1970, 1, 1, tzinfo=UTC), [],
    ),
]  # fmt: skip
OFFSETS = {"clicks": {0: 4}}


@pytest.fixture
def clock():
    return ManualClock(wall_ms=1_000_000)


@pytest.fixture
def sales(database, clock):
    catalog = Catalog(database, clock)
    catalog.create_view("sales", "kappa", "h")
    catalog.add_version("sales", {}, "h")
    for event in (VersionEvent.STARTED, VersionEvent.CAUGHT_UP):
        catalog.set_state("sales", 1, event)
    table = data_table("sales__v1", SCHEMA, ["id"])
    with database.begin() as connection:
        create_table(connection, table)
        database.upsert(connection, table, rows_table(ROWS), batch_id=1)
        catalog.set_progress(connection, Progress("sales", 1, 1, OFFSETS))
        catalog.switch(connection, "sales", 1, select_all(table))
    return table


def rows_table(rows):
    columns = zip(*rows, strict=True)
    arrays = [pa.array(values, kind) for values, kind in zip(columns, SCHEMA.types, strict=True)]
    return pa.table(arrays, schema=SCHEMA)


@pytest.fixture
def service(database_url, sales, clock):
    opened = QueryService(database_url, clock)
    yield opened
    opened.close()


@pytest.fixture
def answers(service, clock):
    made = LargeAnswers(service, clock=clock)
    yield made
    made.close()
    assert (made.spool.file_count, made.spool.size_bytes) == (0, 0), "every file is closed"


def arrow(answers, sql, limit=None, **options):
    found = answers.arrow(sql, limit=limit, timeout_ms=30_000, **options)
    with found.file as file:
        table = pa.ipc.open_stream(file.read_at(0, file.size_bytes)).read_all()
    return table, found


POSTGRESQL_TYPES = {
    "id": pa.int64(), "small": pa.int16(), "flag": pa.bool_(), "ratio": pa.float64(), "price": pa.decimal128(12, 2),
    "name": pa.string(), "raw": pa.binary(), "day": pa.date32(), "at": pa.timestamp("us"),
    "at_utc": pa.timestamp("us", "UTC"), "tags": pa.string(),
}  # fmt: skip
#: SQLite has no types for times and decimals.
SQLITE_TYPES = POSTGRESQL_TYPES | {
    "small": pa.int64(), "price": pa.float64(), "day": pa.string(), "at": pa.string(), "at_utc": pa.string(),
}  # fmt: skip


def test_every_type_and_null_arrives(answers, database):
    table, found = arrow(answers, "SELECT * FROM sales ORDER BY id")
    types = dict(zip(table.column_names, table.schema.types, strict=True))
    assert types == (SQLITE_TYPES if database.is_sqlite else POSTGRESQL_TYPES)
    rows = table.to_pylist()
    assert [row["id"] for row in rows] == [1, 2, 3]
    assert set(rows[1].values()) == {2, None}
    kept = ("small", "flag", "ratio", "name", "raw") + (() if database.is_sqlite else ("price", "day", "at", "at_utc"))
    for row, given in zip((rows[0], rows[2]), (ROWS[0], ROWS[2]), strict=True):
        expected = dict(zip(SCHEMA.names, given, strict=True))
        assert {name: row[name] for name in kept} == {name: expected[name] for name in kept}
    assert [json.loads(row["tags"]) for row in (rows[0], rows[2])] == [["x", "ü"], []]
    if database.is_sqlite:
        assert (rows[0]["price"], rows[0]["day"], rows[0]["at"]) == (1.1, "2026-01-02", "2026-01-02 03:04:05")
    assert not found.is_truncated


def test_the_schema_says_what_the_answer_is_as_of(answers):
    table, found = arrow(answers, "SELECT id FROM sales")
    (as_of,) = json.loads(table.schema.metadata[b"headrace.as_of"])
    assert (as_of["view"], as_of["version"], as_of["offsets"]) == ("sales", 1, {"clicks": {"0": 4}})
    assert [each.offsets for each in found.as_of] == [OFFSETS]


def test_an_empty_answer_has_its_schema(answers, database):
    table, _ = arrow(answers, "SELECT * FROM sales WHERE id > 100")
    assert table.num_rows == 0
    types = dict(zip(table.column_names, table.schema.types, strict=True))
    assert types == (SQLITE_TYPES if database.is_sqlite else POSTGRESQL_TYPES)


def test_one_column_of_nulls_and_empty_texts_keeps_its_rows(answers):
    table, _ = arrow(answers, "SELECT name FROM sales ORDER BY id")
    assert table.column("name").to_pylist() == ['a,"b"\nc', None, ""]
    table, _ = arrow(answers, "SELECT name FROM sales WHERE id = 2")
    assert table.column("name").to_pylist() == [None]
    assert table.schema.types == [pa.string()]


def test_columns_may_have_the_same_name(answers):
    table, _ = arrow(answers, "SELECT id AS a, name AS a FROM sales WHERE id = 3;")
    assert (table.column_names, [column.to_pylist() for column in table.columns]) == (["a", "a"], [[3], [""]])


def test_the_values_decide_although_a_column_of_the_view_has_the_name(answers):
    table, _ = arrow(answers, "SELECT count(*) AS name, max(name) AS id FROM sales")
    assert table.to_pylist() == [{"name": 3, "id": 'a,"b"\nc'}]


def test_many_rows_come_in_batches_and_can_be_limited(answers):
    many = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 70000) SELECT x FROM n"
    table, found = arrow(answers, many)
    assert table.column("x").to_pylist() == [*range(1, 70001)]
    for limit, rows, is_truncated in ((1, 1, True), (69_999, 69_999, True), (70_000, 70_000, False)):
        table, found = arrow(answers, many, limit)
        assert (table.num_rows, found.is_truncated) == (rows, is_truncated)
    assert arrow(answers, "SELECT 1 AS one")[0].to_pylist() == [{"one": 1}], "connections can be used again"


def test_compression_is_an_option(answers):
    sql = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 9000) SELECT x / 1000 AS y FROM n"
    plain, found = arrow(answers, sql)
    for compression in ("lz4", "zstd"):
        table, smaller = arrow(answers, sql, compression=compression)
        assert table == plain
        assert smaller.file.size_bytes < found.file.size_bytes / 3


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_type_that_changes_late_changes_for_all_rows(answers):
    late = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 50000) SELECT {} AS y FROM n"
    table, _ = arrow(answers, late.format("CASE WHEN x < 40000 THEN x ELSE x + 0.5 END"))
    assert table.schema.types == [pa.float64()]
    assert table.column("y").to_pylist()[39_998:40_000] == [39_999.0, 40_000.5]
    table, _ = arrow(answers, late.format("CASE WHEN x < 40000 THEN NULL WHEN x < 50000 THEN x ELSE 'end' END"))
    assert table.column("y").to_pylist()[39_998:40_000] == [None, "40000"]
    assert table.column("y")[-1].as_py() == "end"


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_other_types_of_postgresql(answers):
    table, _ = arrow(
        answers,
        "SELECT sum(id) AS total, avg(small) AS half, ARRAY['a', 'b,c'] AS list, '{\"a\": [1]}'::jsonb AS json, "
        "interval '90 min' AS span, '12:30'::time AS time, 'NaN'::float8 AS nan, '-Infinity'::real AS low, "
        "repeat('9', 60)::numeric(70, 2) AS wide, 'f81d4fae-7dec-11d0-a765-00a0c91e6bf6'::uuid AS uuid FROM sales",
    )
    (row,) = table.to_pylist()
    assert str(row.pop("nan")) == "nan"
    assert row == {
        "total": 6.0, "half": 3.0, "list": '["a", "b,c"]', "json": '{"a": [1]}', "span": "1:30:00",
        "time": datetime.time(12, 30), "low": float("-inf"), "wide": Decimal(f"{'9' * 60}.00"),
        "uuid": "f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
    }  # fmt: skip


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_query_cannot_leave_the_copy_statement(answers, tmp_path):
    out = tmp_path / "out"
    for sql, kind in (
        (f"SELECT 1) TO PROGRAM 'touch {out}' --", QueryError),
        (f"SELECT 1) TO '{out}' /*", QueryError),
        ("SELECT 1; SELECT 2", NotReadOnly),
        ("SELECT 1; -- done", NotReadOnly),
        ("SELECT 'infinity'::timestamp", QueryError),
        ("SELECT", QueryError),
    ):
        with pytest.raises(kind):
            arrow(answers, sql)
        assert arrow(answers, "SELECT ';) --' AS text -- ;\n;")[0].to_pylist() == [{"text": ";) --"}]
    assert not out.exists()


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_an_error_names_its_position(answers):
    with pytest.raises(QueryError, match='column "nope" does not exist') as error:
        arrow(answers, "SELECT nope FROM sales")
    assert error.value.position == 8


def test_a_query_that_writes_or_fails_leaves_no_file(answers):
    for sql in ("DROP VIEW sales", "SELECT * FROM salez", "SELECT 1 / 0 FROM sales, nowhere", ""):
        for run in (answers.arrow, answers.csv):
            with pytest.raises(QueryError):
                run(sql, limit=None, timeout_ms=1000)
        with pytest.raises(QueryError):
            answers.first_page(sql, page_size=1, timeout_ms=1000)
    assert answers.spool.file_count == 0


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"


def test_an_answer_without_end_is_bounded_by_bytes(service):
    answers = LargeAnswers(service, Spool(max_bytes=3 << 20))
    for run in (answers.arrow, answers.csv):
        with pytest.raises(AnswerTooLarge, match="select fewer rows"):
            run(ENDLESS, limit=None, timeout_ms=60_000)
    with pytest.raises(AnswerTooLarge):
        answers.first_page(ENDLESS, page_size=1, timeout_ms=60_000)
    assert (answers.spool.file_count, answers.spool.size_bytes) == (0, 0)


def test_an_answer_without_end_is_bounded_by_time(database_url, sales):
    service = QueryService(database_url)
    answers = LargeAnswers(service)
    for run in (answers.arrow, answers.csv):
        with pytest.raises(QueryTimeout):
            run(ENDLESS, limit=None, timeout_ms=300)
    assert (answers.spool.file_count, answers.spool.size_bytes) == (0, 0)
    service.close()


def test_only_so_many_files_are_open(service):
    answers = LargeAnswers(service, Spool(max_files=1))
    first = answers.first_page("SELECT id FROM sales", page_size=1, timeout_ms=1000)
    with pytest.raises(ServerBusy, match="try again later"):
        answers.csv("SELECT 1", limit=None, timeout_ms=1000)
    assert first.next is not None
    answers.close()


def test_csv_has_all_rows(answers):
    found = answers.csv("SELECT id, name, flag FROM sales ORDER BY id", limit=None, timeout_ms=1000)
    with found.file as file:
        assert file.read_at(0, 1000) == b'id,name,flag\n1,"a,""b""\nc",true\n2,,\n3,,false\n'
    found = answers.csv("SELECT id FROM sales ORDER BY id", limit=2, timeout_ms=1000)
    with found.file as file:
        assert (file.read_at(0, 1000), found.is_truncated) == (b"id\n1\n2\n", True)


# ----------------------------------------------------------------------------------------------------------- pages


def test_pages_are_one_snapshot_while_the_view_changes(answers, database, sales):
    page = answers.first_page("SELECT id, tags FROM sales ORDER BY id", page_size=1, timeout_ms=1000)
    with database.begin() as connection:
        changed = rows_table([(number, *ROWS[1][1:]) for number in range(50)])
        database.upsert(connection, sales, changed, batch_id=2)
    rows = [json.loads(row) for row in page.rows]
    tokens = []
    while page.next is not None:
        tokens.append(page.next)
        page = answers.page(page.next, page_size=1)
        rows += [json.loads(row) for row in page.rows]
        assert [each.offsets for each in page.as_of] == [OFFSETS]
    assert rows == [[1, ["x", "ü"]], [2, None], [3, []]]
    assert [json.loads(row) for row in answers.page(tokens[0], page_size=10).rows] == rows[1:], (
        "a page can be read again"
    )


def test_an_answer_of_one_page_keeps_nothing(answers):
    page = answers.first_page("SELECT id FROM sales", page_size=3, timeout_ms=1000)
    assert (len(page.rows), page.next, answers.spool.file_count) == (3, None, 0)


def test_a_page_has_so_many_bytes_at_most(answers, monkeypatch):
    monkeypatch.setattr("headrace.pipeline.serving.queries.large_answers.MAX_ANSWER_BYTES", 10)
    page = answers.first_page("SELECT 'long text' AS a FROM sales", page_size=3, timeout_ms=1000)
    assert len(page.rows) == 1
    assert len(answers.page(page.next, page_size=3).rows) == 1


def test_a_page_is_gone_after_a_while(answers, clock):
    first = answers.first_page("SELECT id FROM sales", page_size=1, timeout_ms=1000)
    clock.advance(PAGES_KEPT_MS - 1)
    second = answers.page(first.next, page_size=1)
    clock.advance(PAGES_KEPT_MS - 1)
    assert answers.page(second.next, page_size=1).next is None
    clock.advance(PAGES_KEPT_MS)
    with pytest.raises(PageGone, match="run the query again"):
        answers.page(second.next, page_size=1)
    assert answers.spool.file_count == 0


def test_a_wrong_token_is_refused(answers):
    first = answers.first_page("SELECT id FROM sales", page_size=1, timeout_ms=1000)
    name = first.next.partition(".")[0]
    for token in (
        "",
        "x",
        f"{name}.1",
        f"{name}.-1",
        f"{name}.99",
        f"{name}.{'9' * 30}",
        f"{name}.٣",
        f"x{first.next}",
    ):
        with pytest.raises(PageGone):
            answers.page(token, page_size=1)
    assert len(answers.page(f"{name}.0", page_size=9).rows) == 3


def test_a_full_disk_is_told(answers, monkeypatch):
    class Full(io.RawIOBase):
        def write(self, data):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("headrace.pipeline.serving.queries.spool.tempfile.TemporaryFile", lambda **_: Full())
    with pytest.raises(AnswerTooLarge, match="TMPDIR"):
        answers.csv("SELECT 1", limit=None, timeout_ms=1000)
