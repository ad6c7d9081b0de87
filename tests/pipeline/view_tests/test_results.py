"""Results of tests: the failures, and their forms for people, programs and CI servers."""

from dataclasses import replace
from xml.etree import ElementTree

import pyarrow as pa
import pytest
from shop_project import read, told

from headrace.pipeline.view_tests.cases import ArchitectureOutcome, FoundRows, Outcome
from headrace.pipeline.view_tests.junit import junit_xml
from headrace.pipeline.view_tests.messages import read_outcome, read_test, written_outcome, written_test
from headrace.pipeline.view_tests.report_text import as_json, result_lines, summary_line
from headrace.pipeline.view_tests.results import changes_of, check_outcome

SCHEMA = pa.schema([("country", pa.string()), ("total", pa.int64())])
TEXT = """
[[test]]
name = "two steps"
[[test.step]]
rows = [{ country = "DE", total = 5 }]
dead_letters = 0
[[test.step]]
name = "second"
rows = [{ Country = "DE", total = 6 }]
"""
DE5, DE6, DE7 = [("DE", 5)], [("DE", 6)], [("DE", 7)]


def outcome(first=DE5, second=DE6, dead=0, batches=None, **others) -> Outcome:
    steps = (FoundRows(first, dead), FoundRows(second, dead))
    tried = ArchitectureOutcome("lambda", "combine", steps=steps, after_batch=FoundRows(second, dead))
    skipped = ArchitectureOutcome("kappa", skipped="it has a reason")
    return Outcome(
        SCHEMA, ("country",), (replace(tried, **others), skipped), tuple(batches or (first, second)), "", 1.25
    )


def result_of(folder, found: Outcome, text: str = TEXT):
    (run,), document = read(folder, text)
    return check_outcome(run.test, found, document), document


def test_a_test_passes(tmp_path):
    result, _ = result_of(tmp_path, outcome())
    assert result.is_passed
    assert result_lines(result, "a.toml") == [
        "passed  revenue: two steps  (lambda by combine; 1.2 s)",
        "        kappa is skipped: it has a reason",
    ]
    assert summary_line([result], 2) == "1 passed in 2.0 s"


def test_other_rows_fail_with_their_step_and_line(tmp_path):
    result, _ = result_of(tmp_path, outcome(second=DE7, dead=1))
    assert result_lines(result, "a.toml")[2:6] == [
        "    a.toml:4: step 1, lambda by combine: dead_letters: expected 0, found 1",
        "    a.toml:7: step 2 (second), lambda by combine: 1 row changed",
        "           country  total",
        "        ~  DE       6 -> 7",
    ]
    assert [failure.what for failure in result.failures][2] == "after a batch over all records, 1 row changed"
    assert summary_line([result], 2) == "1 failed in 2.0 s"
    assert as_json(result, "a.toml")["failures"][1]["diff"] == ["   country  total", "~  DE       6 -> 7"]


def test_a_wrong_maintenance_is_told_from_a_wrong_test(tmp_path):
    result, _ = result_of(tmp_path, outcome(second=DE6, batches=(DE5, DE7)))
    assert [failure.is_fault for failure in result.failures] == [True, True]
    assert "not Spark's batch answer over the same records" in result.failures[0].what
    assert changes_of(result, outcome(second=DE6, batches=(DE5, DE7))) == ({}, {})


def test_an_error_of_the_view_fails_at_the_step_after_the_last_one(tmp_path):
    found = outcome(steps=(FoundRows(DE5, 0),), after_batch=None, error="division by zero")
    result, _ = result_of(tmp_path, found)
    assert [(failure.step, failure.what) for failure in result.failures] == [(2, "division by zero")]
    assert changes_of(result, found) == ({}, {})


def test_a_query_that_fails_as_a_batch_fails(tmp_path):
    result, _ = result_of(tmp_path, replace(outcome(batches=(DE5,)), batch_error="division by zero"))
    assert [failure.what for failure in result.failures] == ["Spark computes no batch answer: division by zero"]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ('{ country = 5 }', "3: country is string: write a text in quotes"),
        ('{ total = "5" }', "3: total is int64: write a whole number"),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_a_mistake_of_the_file(tmp_path, row, problem):
    found = replace(outcome(), architectures=(), batches=())
    result, document = result_of(tmp_path, found, f"[[test]]\n\nrows = [{row}]\n")
    assert told(document) == [problem]
    assert (len(result.problems), result.is_passed) == (1, False)


def test_updates_are_what_the_view_showed(tmp_path):
    found = outcome(second=DE7, dead=3)
    result, _ = result_of(tmp_path, found)
    changes = changes_of(result, found)
    assert changes.dead_letters == {("test", 0, "step", 0): 3}
    assert changes.rows[("test", 0, "step", 1)] == (SCHEMA, DE7)


def test_junit_has_a_case_per_architecture(tmp_path):
    passed, _ = result_of(tmp_path, outcome())
    failed, _ = result_of(tmp_path, outcome(second=[("D\x00", 6)]))
    root = ElementTree.fromstring(junit_xml([passed, failed], ["a.toml", "b.toml"]))
    first, second = root
    assert (second.get("name"), second.get("tests"), second.get("failures"), second.get("skipped")) == (
        "b.toml", "2", "1", "1",
    )  # fmt: skip
    assert [case.get("name") for case in first] == ["two steps (lambda)", "two steps (kappa)"]
    assert first[1][0].get("message") == "it has a reason"
    assert "1 row missing, 1 row unexpected" in second[0][0].get("message")
    assert "b.toml:7: step 2 (second)" in second[0][0].text


def test_tests_and_outcomes_pass_through_json(tmp_path):
    text = '[[test]]\nrecords.orders = [{ amount = 1, _headers = { a = "b" } }, { _tombstone = true, _key = 1 }]\n'
    (run,), _ = read(tmp_path, text)
    assert read_test(written_test(run.test)).steps[0].records == run.test.steps[0].records
    found = outcome(first=[("DE", None)])
    assert read_outcome(written_outcome(found)) == found
