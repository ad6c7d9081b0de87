"""Checks the outcome of a test: compares the rows of each architecture with the expected rows and the batch answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]

from headrace.pipeline.project.toml_files import Problem, did_you_mean
from headrace.pipeline.view_tests.cases import ArchitectureOutcome, FoundRows, Outcome, Step, ViewTest
from headrace.pipeline.view_tests.cells import Row, UnfitValue, expected_cell
from headrace.pipeline.view_tests.comparing import Difference, compare
from headrace.pipeline.view_tests.diff_text import diff_lines, summary
from headrace.pipeline.view_tests.documents import Document
from headrace.pipeline.view_tests.places import Path as Place


@dataclass(frozen=True)
class Failure:
    """One thing that is not as expected.

    :param step: the number of the step, from 1.
    :param what: one line.
    :param lines: the difference of the rows.
    :param is_fault: whether the maintenance of the view is wrong, and not the test or the query.
    """

    architecture: str
    way: str
    step: int
    line: int | None
    what: str
    lines: tuple[str, ...] = ()
    is_fault: bool = False


@dataclass(frozen=True)
class Result:
    """
    :param problems: mistakes in the file of the test, which was not checked.
    :param skipped: by architecture, why it was not tried.
    :param tried: by architecture, how the answer was kept up to date.
    """

    test: ViewTest
    failures: tuple[Failure, ...] = ()
    problems: tuple[Problem, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    tried: tuple[tuple[str, str], ...] = ()
    note: str = ""
    seconds: float = 0.0

    @property
    def is_passed(self) -> bool:
        return not self.failures and not self.problems


def check_outcome(test: ViewTest, outcome: Outcome, document: Document) -> Result:
    """
    :param document: the file of the test, for the lines of mistakes.
    """
    schema: pa.Schema = outcome.columns
    known = len(document.problems)
    expected = [_expected_rows(step, schema, test.view, document) for step in test.steps]
    problems = tuple(document.problems[known:])
    failures: list[Failure] = []
    if not problems:
        for tried in outcome.architectures:
            failures += _OutcomeCheck(test, outcome, tried, expected).failures()
    return Result(
        test,
        tuple(failures),
        problems,
        tuple((each.architecture, each.skipped) for each in outcome.architectures if each.skipped),
        tuple((each.architecture, each.way) for each in outcome.architectures if not each.skipped),
        outcome.note,
        outcome.seconds,
    )


class Changes(NamedTuple):
    """The rows that ``--update`` writes, by the place of a step in its file."""

    rows: dict[Place, tuple[pa.Schema, list[Row]]]
    dead_letters: dict[Place, int]


def changes_of(result: Result, outcome: Outcome) -> Changes:
    """Returns the rows of the view for the steps that expect other rows, or no rows yet.

    The first architecture counts, which is the view's own. Nothing is written if an architecture ended with an error or
    differs from the batch answer: such rows are not what the view should show.
    """
    tried = next(each for each in outcome.architectures if not each.skipped)
    changes = Changes({}, {})
    if any(each.error for each in outcome.architectures) or any(failure.is_fault for failure in result.failures):
        return changes
    wrong = {failure.step for failure in result.failures}
    for number, (step, found) in enumerate(zip(result.test.steps, tried.steps, strict=True), start=1):
        if step.rows is None or number in wrong:
            changes.rows[step.place] = (outcome.columns, _tuples(found.rows))
        if step.dead_letters is not None and step.dead_letters != found.dead_letters:
            changes.dead_letters[step.place] = found.dead_letters
    return changes


def _expected_rows(step: Step, schema: pa.Schema, view: str, document: Document) -> list[Row] | None:
    """The expected rows with all columns of the answer. A column that a row leaves out is NULL."""
    if step.rows is None:
        return None
    names = {name.lower(): at for at, name in enumerate(schema.names)}
    found: list[Row] = []
    for index, row in enumerate(step.rows):
        cells: list[Any] = [None] * len(schema)
        for name, value in row.items():
            place = (*step.place, "rows", index, name)
            if name.lower() not in names:
                document.report(f"the view {view} has no column {name}{did_you_mean(name, schema.names)}", place)
                continue
            at = names[name.lower()]
            try:
                cells[at] = expected_cell(value, schema.types[at])
            except UnfitValue as error:
                document.report(f"{name} is {schema.types[at]}: {error}", place)
        found.append(tuple(cells))
    return found


class _OutcomeCheck:
    def __init__(
        self, test: ViewTest, outcome: Outcome, tried: ArchitectureOutcome, expected: Sequence[list[Row] | None]
    ) -> None:
        self._test, self._outcome, self._tried, self._expected = test, outcome, tried, expected

    def failures(self) -> Iterator[Failure]:
        for at, found in enumerate(self._tried.steps):
            yield from self._of_rows(at, found, "")
            wanted = self._test.steps[at].dead_letters
            if wanted is not None and found.dead_letters != wanted:
                yield self._failure(at, f"dead_letters: expected {wanted}, found {found.dead_letters}")
        last = len(self._test.steps) - 1
        if self._tried.after_batch is not None:
            yield from self._of_rows(last, self._tried.after_batch, "after a batch over all records, ")
        if self._outcome.batch_error and not self._tried.error and not self._tried.skipped:
            at = min(len(self._outcome.batches), last)
            yield self._failure(at, f"Spark computes no batch answer: {self._outcome.batch_error}")
        if self._tried.error:
            yield self._failure(min(len(self._tried.steps), last), self._tried.error)

    def _of_rows(self, at: int, found: FoundRows, when: str) -> Iterator[Failure]:
        rows, expected = _tuples(found.rows), self._expected[at]
        difference = Difference() if expected is None else self._compared(expected, rows)
        if difference:
            yield self._failure(at, f"{when}{summary(difference)}", difference)
        if at < len(self._outcome.batches):
            wrong = self._compared(_tuples(self._outcome.batches[at]), rows)
            if wrong:
                what = "not Spark's batch answer over the same records, which is a fault of Headrace: please report it"
                yield replace(self._failure(at, f"{when}{what}: {summary(wrong)}", wrong), is_fault=True)

    def _compared(self, expected: Sequence[Row], rows: Sequence[Row]) -> Difference:
        return compare(expected, rows, self._outcome.columns, self._outcome.key, is_ordered=self._test.is_ordered)

    def _failure(self, at: int, what: str, difference: Difference | None = None) -> Failure:
        lines = diff_lines(difference, self._outcome.columns.names) if difference else []
        return Failure(self._tried.architecture, self._tried.way, at + 1, self._test.steps[at].line, what, tuple(lines))


def _tuples(rows: Sequence[Sequence[Any]]) -> list[Row]:
    return [tuple(row) for row in rows]
