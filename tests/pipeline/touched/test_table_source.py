"""The rows of a table source: what records change, whatever their order and partition."""

from __future__ import annotations

import datetime
import random

import pyarrow as pa
import pytest

from headrace.pipeline.touched.table_source import TableSource

_SCHEMA = pa.schema(
    [("name", pa.string()), ("_key", pa.binary()), ("_topic", pa.string()), ("_partition", pa.int32()),
     ("_offset", pa.int64()), ("_timestamp", pa.timestamp("us", "UTC")), ("_removed", pa.bool_())]
)  # fmt: skip
_START = datetime.datetime(2026, 11, 17, tzinfo=datetime.UTC)


def record(key: str, name: str | None, offset: int, *, second: int | None = None, partition: int = 0) -> tuple:
    at = _START + datetime.timedelta(seconds=offset if second is None else second)
    return (name, key.encode(), "t", partition, offset, at, name is None)


def table_of(records: list[tuple]) -> pa.Table:
    columns = list(zip(*records, strict=True)) or [()] * len(_SCHEMA)
    return pa.table([pa.array(each, field.type) for each, field in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA)


@pytest.fixture
def source(sqlite_url):
    from headrace.pipeline.serving.database import Database

    made = _Source(Database(sqlite_url))
    yield made
    made.database.close()


class _Source:
    def __init__(self, database) -> None:
        self.database, self.table = database, TableSource("state", _SCHEMA)
        self.rows: list[tuple] = []
        with database.begin() as connection:
            self.table.state.create(connection)

    def receive(self, *records: tuple) -> tuple[list[str], list[str]]:
        """The names of the rows that come and go."""
        with self.database.read() as connection:
            change = self.table.change(connection, table_of(list(records)))
        with self.database.begin() as connection:
            self.table.state.add(connection, change.state)
        came, gone = (_tuples(each) for each in (change.rows.added, change.rows.removed))
        for row in gone:
            self.rows.remove(row)
        self.rows += came
        return [row[0] for row in came], [row[0] for row in gone]


def _tuples(rows: pa.Table) -> list[tuple]:
    return [tuple(row.values()) for row in rows.to_pylist()]


def test_a_newer_record_replaces_the_row(source):
    assert source.receive(record("a", "Ann", 0), record("b", "Bob", 1)) == (["Ann", "Bob"], [])
    assert source.receive(record("a", "Anna", 2)) == (["Anna"], ["Ann"])


def test_a_record_without_a_value_removes_the_row(source):
    source.receive(record("a", "Ann", 0))
    assert source.receive(record("a", None, 1)) == ([], ["Ann"])
    assert source.receive(record("a", None, 2)) == ([], [])
    assert source.receive(record("a", "again", 3)) == (["again"], [])


def test_of_several_records_in_one_batch_the_newest_counts(source):
    assert source.receive(record("a", "one", 0), record("a", "two", 1), record("a", "three", 2)) == (["three"], [])


def test_an_older_record_of_another_partition_changes_nothing(source):
    source.receive(record("a", "new", 0, second=9))
    assert source.receive(record("a", "old", 0, second=5, partition=1)) == ([], [])
    assert source.receive(record("a", None, 1, second=10)) == ([], ["new"])
    assert source.receive(record("a", "late", 1, second=7, partition=1)) == ([], [])


def test_a_record_without_a_timestamp_is_the_oldest(source):
    def timeless(name: str, partition: int) -> tuple:
        made = list(record("a", name, 0, partition=partition))
        made[5] = None
        return tuple(made)

    assert source.receive(timeless("zero", 0), timeless("one", 1)) == (["one"], [])
    assert source.receive(record("a", "two", 0, second=1, partition=2)) == (["two"], ["one"])


def test_within_a_partition_the_offset_counts_and_not_the_time(source):
    source.receive(record("a", "first", 0, second=9))
    assert source.receive(record("a", "second", 1, second=1)) == (["second"], ["first"])


@pytest.mark.parametrize("seed", range(20))
def test_random_cuts_give_the_same_table(source, seed):
    r = random.Random(seed)
    offsets, sent = [0, 0], []
    for _ in range(8):
        batch = []
        for _ in range(r.randrange(5)):
            partition = r.randrange(2)
            name = None if r.random() < 0.3 else f"n{r.randrange(99)}"
            batch.append(record(r.choice("abc"), name, offsets[partition], second=r.randrange(9), partition=partition))
            offsets[partition] += 1
        source.receive(*batch)
        sent += batch
        assert sorted(source.rows, key=repr) == sorted(_expected(sent), key=repr)


def _expected(records: list[tuple]) -> list[tuple]:
    newest: dict = {}
    for row in records:
        place = row[1], row[2], row[3]
        if place not in newest or newest[place][4] < row[4]:
            newest[place] = row
    by_key: dict = {}
    for row in newest.values():
        if row[1] not in by_key or (row[5], row[2], row[3]) > (by_key[row[1]][5], by_key[row[1]][2], by_key[row[1]][3]):
            by_key[row[1]] = row
    return [row for row in by_key.values() if not row[6]]


def test_a_truncation_removes_the_rows_before_it_in_its_partition(source):
    source.receive(record("a", "Ann", 0), record("b", "Bob", 1), record("c", "Cid", 0, partition=1))
    truncation = (None, None, "t", 0, 3, _START, True)
    came, gone = source.receive(record("d", "Dan", 2), truncation, record("a", "Anna", 4))
    assert (came, sorted(gone)) == (["Anna"], ["Ann", "Bob"])
    assert source.receive(record("b", "Bo", 5), record("c", "Carl", 1, partition=1)) == (["Bo", "Carl"], ["Cid"])
    assert sorted(row[0] for row in source.rows) == ["Anna", "Bo", "Carl"]
