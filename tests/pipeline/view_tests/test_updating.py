"""--update writes rows into the files of tests, and leaves all other characters alone."""

import pyarrow as pa
import pytest
from shop_project import read

from headrace.pipeline.view_tests.cells import expected_cell
from headrace.pipeline.view_tests.documents import read_document
from headrace.pipeline.view_tests.updating import NotUpdated, updated_text, write_text

SCHEMA = pa.schema([("country", pa.string()), ("total", pa.int64())])
ROWS = [("DE", 5), ('a "b"\n', None)]
STEP = ("test", 0, "step", 0)


def updated(folder, text, rows, name="revenue.toml", place=STEP, schema=SCHEMA, dead_letters=None) -> str:
    _, document = read(folder, text, name)
    return updated_text(document, {place: (schema, rows)}, {} if dead_letters is None else {place: dead_letters})


def test_only_the_rows_change(tmp_path):
    top = "# the top\n[[test]]\n[[test.step]]\n"
    before = f"{top}rows = [\n  {{ total = 1 }}, # gone\n]   # stays\ndead_letters = 9 # too\n"
    after = updated(tmp_path, before, ROWS, dead_letters=2)
    assert after == (
        f"{top}rows = [\n"
        '    { country = "DE", total = 5 },\n    { country = "a \\"b\\"\\n" },\n]   # stays\n'
        "dead_letters = 2 # too\n"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("[[test]]\n[[test.step]]\n", "[[test]]\n[[test.step]]\nrows = []\n"),
        (
            "[[test]]\n[[test.step]]\nrecords.orders = [\n] # none\n\n[[test]]\n",
            "[[test]]\n[[test.step]]\nrecords.orders = [\n] # none\nrows = []\n\n[[test]]\n",
        ),
        (
            "[[test]]\n[[test.step]]\n[[test.step.records.orders]]\namount = 1\n",
            "[[test]]\n[[test.step]]\nrows = []\n[[test.step.records.orders]]\namount = 1\n",
        ),
    ],
)
def test_a_step_without_rows_gets_them(tmp_path, before, after):
    assert updated(tmp_path, before, []) == after


def test_line_ends_stay(tmp_path):
    path = tmp_path / "a.toml"
    path.write_bytes(b"[[test]]\r\n[[test.step]]\r\nrows = []\r\n")
    write_text(path, updated_text(read_document(path), {STEP: (SCHEMA, [("DE", 5)])}, {}))
    assert path.read_bytes() == b'[[test]]\r\n[[test.step]]\r\nrows = [{ country = "DE", total = 5 }]\r\n'


def test_rows_with_headers_of_their_own_are_refused(tmp_path):
    with pytest.raises(NotUpdated, match=r"write rows = \[\] instead"):
        updated(tmp_path, "[[test]]\n[[test.step]]\n[[test.step.rows]]\ntotal = 1\n", ROWS)


WIDE = pa.schema(
    [
        ("odd name", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("ratio", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
        ("ok", pa.bool_()),
        ("list", pa.list_(pa.int64())),
        ("inner", pa.struct([("a", pa.string()), ("b", pa.float64())])),
        ("raw", pa.binary()),
    ]
)
WIDE_ROWS = [
    ("x", "1.50", 1e22, "2026-11-16T08:30:00", "2026-11-16T08:30:00.5", "2026-11-16", True, [1, None],
     {"a": None, "b": float("inf")}, "00ff"),
    tuple(None for _ in WIDE),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.toml", '[[test]]\nview = "spending"\n[[test.step]]\nrows = []\n'),
        ("a.yaml", "test:\n  - view: spending\n    step:\n      - dead_letters: 0\n        rows: []\n"),
        ("a.yaml", "test:\n  - view: spending\n    step:\n      - rows:\n          - {total: 1}\n          - a: 1\n"),
        ("a.yaml", "test:\n  - view: spending\n    step:\n      - dead_letters: 0   # last\n"),
    ],
)
def test_what_is_written_is_read_as_the_same_rows(tmp_path, name, text):
    after = updated(tmp_path, text, WIDE_ROWS, name, schema=WIDE)
    (tmp_path / name).write_text(after)
    document = read_document(tmp_path / name)
    assert not document.problems, after
    found = document.content["test"][0]["step"][0]["rows"]
    from headrace.pipeline.view_tests.record_tables import plain

    rows = [plain(row) for row in found]
    assert [tuple(expected_cell(row.get(field.name), field.type) for field in WIDE) for row in rows] == [
        tuple(_expected(value, field.type) for value, field in zip(row, WIDE, strict=True)) for row in WIDE_ROWS
    ]


def _expected(value, kind):
    return expected_cell(value, kind)
