"""Files of tests become records and expected rows, and mistakes in them have their line."""

from decimal import Decimal
from pathlib import Path

import pytest
from shop_project import make_shop, read, told

from headrace.pipeline.view_tests import documents
from headrace.pipeline.view_tests.documents import files_with_tests, read_document
from headrace.pipeline.view_tests.record_tables import FIRST_MS


def records(folder: Path, source: str, table: str, view: str = "revenue"):
    (run,), document = read(folder, f'view = "{view}"\n[[test]]\nrecords.{source} = [{table}]\n')
    assert not document.problems, told(document)
    return run.test.steps[0].records


def test_a_file_has_tests_with_steps(tmp_path):
    runs, document = read(tmp_path, """
        [[test]]
        name = "first"
        architectures = "kappa"
        ordered = true
        [[test.step]]
        name = "one order"
        records.orders = [{ order_id = 1 }]
        rows = [{ country = "DE", total = { null = true } }]
        [[test.step]]
        dead_letters = 0
        [[test]]
        view = "spending"
        rows = []
        """)  # fmt: skip
    first, second = (run.test for run in runs)
    assert not document.problems
    assert (first.label, first.architectures, first.is_ordered) == ("revenue: first", ("kappa",), True)
    assert [(step.name, len(step.records), step.rows, step.dead_letters) for step in first.steps] == [
        ("one order", 1, ({"country": "DE", "total": None},), None), ("", 0, None, 0),
    ]  # fmt: skip
    assert (second.view, second.name, second.steps[0].rows, second.is_ordered) == ("spending", "test 2", (), False)


def test_fields_become_json_and_keys(tmp_path):
    order, customer, gone = (
        *records(tmp_path, "orders", "{ order_id = 1, amount = 7, at = 2026-11-16T08:30:00Z, _key = 5 }"),
        *records(tmp_path, "customers", '{ customer_id = 7, name = "Ann" }'),
        *records(tmp_path, "Customers", "{ _key = { customer_id = 7 }, _tombstone = true }"),
    )
    assert order.value == b'{"order_id": 1, "amount": 7, "at": "2026-11-16T08:30:00+00:00"}'
    assert (order.topic, order.partition, order.key, order.timestamp_ms) == ("orders", 0, b"5", FIRST_MS)
    assert (customer.key, customer.value) == (b'{"customer_id": 7}', b'{"name": "Ann"}')
    assert (gone.key, gone.value) == (b'{"customer_id": 7}', None)


def test_records_may_say_everything(tmp_path):
    first, second, third = records(
        tmp_path,
        "orders",
        '{ _text = "{", _partition = 2, _timestamp = 2026-01-01T00:00:09Z, _headers = { a = "b" } }, '
        '{ _base64 = "AAE=" }, { _value = { order_id = "x", more = { null = true } } }',
    )
    assert (first.value, first.partition, first.headers) == (b"{", 2, (("a", b"b"),))
    assert (second.value, second.timestamp_ms) == (b"\0\1", FIRST_MS + 10_000)
    assert third.value == b'{"order_id": "x", "more": null}'


def test_lines_of_csv_and_topics_of_a_pattern(tmp_path):
    table = '{ _topic = "lines-a", id = 1, price = 2.50, day = 2026-11-16 }, { _topic = "lines-b", id = 2 }'
    first, second = records(tmp_path, "lines", table, "lines")
    assert (first.topic, first.value) == ("lines-a", b"1,2.50,2026-11-16")
    assert (second.topic, second.value) == ("lines-b", b"2,,")


def test_yaml_means_the_same(tmp_path):
    runs, document = read(tmp_path, """
view: spending
test:
  - name: first
    step:
      - records:
          orders:
            - {order_id: 1, amount: null}
        rows:
          - {customer_id: 1, total: null}
""", "more.yaml")  # fmt: skip
    assert not document.problems, told(document)
    step = runs[0].test.steps[0]
    assert step.records[0].value == b'{"order_id": 1, "amount": null}'
    assert (step.rows, step.line) == (({"customer_id": 1, "total": None},), 6)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[test]\n", "1: the file is not valid TOML: Expected ']]' at the end of an array declaration"),
        ("vew = 'revenue'\n[[test]]\n", "1: there is no field 'vew': did you mean view?"),
        ("view = 'revenu'\n[[test]]\n", "1: there is no view revenu: did you mean revenue?"),
        ("\n[[test]]\nview = 'x'\n", "3: there is no view x: known names are lines, revenue, spending"),
        ("view = 'revenue'\n", "None: the file has no tests: begin one with [[test]]"),
        ("[[test]]\nordered = 1\n", "2: ordered must be true or false"),
        ("[[test]]\narchitectures = ['gamma']\n", '2: architectures must be a list of "lambda" and "kappa"'),
        ("[[test]]\nname = 'a'\n[[test]]\nname = 'a'\n", "4: two tests of revenue are named 'a': rename one"),
        ("[[test]]\nstep = 1\n", "2: step must be tables: begin each of them with [[test.step]]"),
        ("[[test]]\nrows = 1\n", '2: rows must be a list of tables, such as [{ country = "DE", total = 5 }]'),
        (
            "[[test]]\nrows = [\n{ country = 'DE' },\n{ cuntry = 'FR' }]\n",
            "4: the view revenue has no column cuntry: did you mean country?",
        ),
        ("[[test]]\ndead_letters = -1\n", "2: dead_letters must be a whole number of at least 0"),
        ("[[test]]\nrecords = []\n", "2: records must name sources: records.orders = [{ ... }]"),
        ("[[test]]\nrecords.order = []\n", "2: the view revenue has no source order: did you mean orders?"),
        ("[[test]]\nrecords.orders = 1\n", "2: the records of orders must be a list of tables"),
        ("[[test]]\nrecords.orders = [1]\n", '2: a record must be a table, such as { user = "ann", ms = 7 }'),
    ],
)
def test_mistakes_have_their_line(tmp_path, text, problem):
    _, document = read(tmp_path, text)
    assert told(document)[0].startswith(problem), told(document)


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ("{ amout = 1 }", "orders has no column amout: did you mean amount?"),
        ("{ amount = 'x' }", "amount is BIGINT: write a whole number; to send it nevertheless, put the fields"),
        ("{ at = 5 }", "at is TIMESTAMP: write a time such as 2026-11-16T08:30:00Z"),
        ("{ _offset = 1 }", "a record has no field _offset"),
        ("{ _text = 'a', _base64 = 'b' }", "a record has one value: remove _text or _base64"),
        ("{ _text = 'a', amount = 1 }", "amount has no effect beside _text: remove one of them"),
        ("{ _base64 = '?' }", "_base64 is not base64"),
        ("{ _text = 1 }", "_text must be a text"),
        ("{ _tombstone = false }", "_tombstone must be true"),
        ("{ amount = 1, _partition = -1 }", "_partition must be a whole number from 0 to 99"),
        ("{ amount = 1, _timestamp = 'now' }", "_timestamp must be a time"),
        ("{ amount = 1, _topic = 'other' }", "orders does not read the topic other"),
        ("{ amount = 1, _key = 1.5 }", "_key must be a text, a whole number or a table"),
        ("{ amount = 1, _headers = [] }", "_headers must be a table of texts"),
    ],
)
def test_mistakes_in_records_have_their_line(tmp_path, record, problem):
    _, document = read(tmp_path, f"[[test]]\nrecords.orders = [\n{{ amount = 1 }},\n{record}]\n")
    assert told(document)[0].startswith(f"4: {problem}"), told(document)


def test_a_row_of_a_table_needs_its_key(tmp_path):
    _, document = read(tmp_path, "[[test]]\nrecords.customers = [{ name = 'Ann' }]\n")
    expected = "2: a record of the table customers needs a key: add _key, or the columns customer_id"
    assert told(document) == [expected]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("test: [", "the file is not valid YAML"),
        ("- a\n", "the file must be a mapping"),
        ("a: &x 1\nb: *x\n", "anchors and aliases (& and *) are not allowed"),
        ("view: revenue\nview: spending\n", "'view' occurs twice: remove one"),
    ],
)
def test_mistakes_in_yaml(tmp_path, text, problem):
    _, document = read(tmp_path, text, "wrong.yml")
    assert problem in told(document)[0]


def test_yaml_without_its_package(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "yaml", None)
    _, document = read(tmp_path, "view: revenue\n", "wrong.yml")
    assert told(document) == ["None: YAML needs one more package: pip install 'headrace[yaml]', or write TOML"]


def test_large_files_and_other_files_are_left_alone(tmp_path, monkeypatch):
    make_shop(tmp_path, revenue="[[test]]\nrows = []\n")
    (tmp_path / "tests" / "notes.md").write_text("no test")
    (path,) = files_with_tests(tmp_path)
    monkeypatch.setattr(documents, "MAX_FILE_BYTES", 3)
    assert "the file is larger than" in told(read_document(path))[0]


def test_numbers_keep_their_digits(tmp_path):
    document = read(tmp_path, "[[test]]\nrows = [{ total = 1.10 }]\n")[1]
    assert str(document.content["test"][0]["rows"][0]["total"]) == "1.10"
    assert isinstance(document.content["test"][0]["rows"][0]["total"], Decimal)
