"""Tests of views run through the real maintenance of each way, in both architectures, with Spark."""

from __future__ import annotations

import pytest
from shop_project import make_shop, read

from headrace.pipeline.project.loading import read_project
from headrace.pipeline.project.toml_files import ProjectError
from headrace.pipeline.view_tests.results import check_outcome
from headrace.pipeline.view_tests.stepping import SteppedView
from headrace.testing import ViewTests, view_tests
from headrace.testing.view_harness import LocalHarness


@pytest.fixture(scope="module")
def harness(spark):
    return LocalHarness(spark)


def checked(harness, folder, text):
    (run,), document = read(folder, text)
    assert not document.problems
    return check_outcome(run.test, harness.run(run), document)


MOVES = """
[[test]]
name = "a customer moves"
[[test.step]]
records.customers = [{ customer_id = 1, country = "DE" }]
records.orders = [{ customer_id = 1, amount = 30 }, { customer_id = 9, amount = 5 }]
rows = [{ country = "DE", total = 30 }]
[[test.step]]
records.customers = [{ customer_id = 1, country = "FR" }]
records.orders = [{ _text = "{" }]
rows = [{ country = "FR", total = 30 }]
dead_letters = 1
[[test.step]]
records.customers = [{ customer_id = 1, _tombstone = true }]
rows = []
"""


def test_a_join_is_kept_by_touched_keys(harness, tmp_path):
    result = checked(harness, tmp_path, MOVES)
    assert result.failures == ()
    assert dict(result.tried) == {"lambda": "touched", "kappa": "touched"}


SPENDING = """
view = "spending"
[[test]]
[[test.step]]
records.orders = [
    { customer_id = 1, amount = 30, at = 2026-11-16T08:30:00Z, _partition = 1 }, { customer_id = 1, amount = 5 },
]
rows = [{ customer_id = 1, total = 35, last = 2026-11-16T08:30:00Z }]
[[test.step]]
records.orders = [{ customer_id = 2 }]
rows = [{ customer_id = 1, total = TOTAL, last = 2026-11-16T08:30:00Z }, { customer_id = 2 }]
"""


def test_sums_are_combined(harness, tmp_path):
    result = checked(harness, tmp_path, SPENDING.replace("TOTAL", "35"))
    assert result.failures == ()
    assert dict(result.tried) == {"kappa": "combine", "lambda": "combine"}


def test_wrong_rows_fail_in_both_architectures_and_after_the_batch(harness, tmp_path):
    result = checked(harness, tmp_path, SPENDING.replace("TOTAL", "36"))
    assert [(each.architecture, each.step, each.is_fault) for each in result.failures] == [
        ("kappa", 2, False), ("lambda", 2, False), ("lambda", 2, False),
    ]  # fmt: skip
    assert result.failures[0].lines[1].split() == ["~", "1", "36", "->", "35", "2026-11-16T08:30:00"]


def test_a_view_on_a_view_is_tested_by_the_records_of_its_sources(harness, tmp_path):
    make_shop(tmp_path)
    (tmp_path / "views/everybody.toml").write_text('architecture = "kappa"\nquery = "everybody.sql"\n')
    (tmp_path / "views/everybody.sql").write_text("SELECT count(*) AS customers, sum(total) AS total FROM spending")
    result = checked(harness, tmp_path, """
        view = "everybody"
        [[test]]
        architectures = ["kappa"]
        [[test.step]]
        records.orders = [{ customer_id = 1, amount = 30 }, { customer_id = 1, amount = 5 }, { _text = "{" }]
        rows = [{ customers = 1, total = 35 }]
        dead_letters = 1
        [[test.step]]
        records.orders = [{ customer_id = 2, amount = 1 }]
        rows = [{ customers = 2, total = 36 }]
        """)  # fmt: skip
    assert result.failures == ()
    assert dict(result.tried) == {"kappa": "touched"}


def test_a_wrong_maintenance_is_found_without_expected_rows(harness, tmp_path, monkeypatch):
    found = SteppedView._found

    def without_the_last_row(view):
        return type(shown := found(view))(shown.rows[:-1], shown.dead_letters)

    monkeypatch.setattr(SteppedView, "_found", without_the_last_row)
    text = 'view = "spending"\n[[test]]\narchitectures = ["kappa"]\nrecords.orders = [{ customer_id = 1 }]\n'
    result = checked(harness, tmp_path, text)
    assert [each.is_fault for each in result.failures] == [True]
    assert dict(result.skipped) == {"lambda": "the test does not ask for it"}


def test_streams_and_orders_of_rows(harness, tmp_path):
    make_shop(tmp_path)
    (tmp_path / "views/spending.sql").write_text("SELECT order_id, amount FROM orders WHERE amount > 1")
    settings = 'architecture = "kappa"\nquery = "spending.sql"\nkey = ["order_id"]\nmaintain = "stream"\n'
    (tmp_path / "views/spending.toml").write_text(settings)
    text = """
        view = "spending"
        [[test]]
        records.orders = [{ order_id = 1, amount = 1 }, { order_id = 2, amount = 2 }]
        rows = [{ order_id = 2, amount = 2 }]
        """
    path = tmp_path / "tests" / "a.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    (test,) = view_tests(tmp_path)
    result = check_outcome(test.run.test, harness.run(test.run), test.document)
    assert result.failures == ()
    assert result.tried == (("kappa", "stream"),)
    assert dict(result.skipped) == {"lambda": 'maintain = "stream" is not a way of a lambda view'}


def test_a_view_that_fails_says_why(harness, tmp_path):
    make_shop(tmp_path)
    (tmp_path / "views/spending.sql").write_text("SELECT amount, sum(1 DIV amount) AS x FROM orders GROUP BY amount")
    path = tmp_path / "tests" / "a.toml"
    path.parent.mkdir(exist_ok=True)
    text = 'view = "spending"\n[[test]]\narchitectures = ["kappa"]\nrecords.orders = [{ amount = 0 }]\n'
    path.write_text(text)
    (test,) = view_tests(tmp_path)
    result = check_outcome(test.run.test, harness.run(test.run), test.document)
    assert ["zero" in failure.what.lower() for failure in result.failures] == [True]


def test_a_query_that_spark_rejects_is_a_problem_of_the_view(harness, tmp_path):
    make_shop(tmp_path)
    (tmp_path / "views/spending.sql").write_text("SELECT amout FROM orders")
    path = tmp_path / "tests" / "a.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text('view = "spending"\n[[test]]\n')
    (test,) = view_tests(tmp_path)
    with pytest.raises(ProjectError, match=r"views/spending.sql:1.*amout.*did you mean amount"):
        harness.run(test.run)


def test_tests_in_python(spark, tmp_path):
    make_shop(tmp_path)
    views = ViewTests()
    records = {"orders": [{"customer_id": 1, "amount": 30}]}
    assert views.rows(tmp_path, "spending", records) == [{"customer_id": 1, "total": 30, "last": None}]
    with pytest.raises(AssertionError, match="31 -> 30"):
        views.steps(tmp_path, "spending", [{"records": records, "rows": [{"customer_id": 1, "total": 31}]}])
    with pytest.raises(ProjectError, match="spending has no source order"):
        views.rows(tmp_path, "spending", {"order": []})
    views.close()
    assert read_project(tmp_path).project.views.keys() >= {"revenue", "spending"}
