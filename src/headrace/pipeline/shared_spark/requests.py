"""The requests of commands, and the runner's answers.

======= ======================================== ====================================================================
kind    request                                  answer
======= ======================================== ====================================================================
check   views: definitions with invalid fields   problems with file, line, column, message; ways and notes by view
explain view: a definition                       problems; explanation: how the view is kept up to date
test    view: a definition; records in steps;    problems; outcome: the rows after each step (``view_tests``)
        the address of the test's own log
======= ======================================== ====================================================================

Both sides have to be the same version of Headrace, because a definition is read as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.pipeline.maintenance.explanation import Explained, explain_view
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.toml_files import Problem, ProjectError
from headrace.pipeline.query.project_checks import Checked, ViewToCheck
from headrace.pipeline.shared_spark.client import ask_runner
from headrace.pipeline.shared_spark.protocol import Message, ProtocolError
from headrace.pipeline.spark.session import is_local
from headrace.pipeline.view_tests.cases import Outcome, Run
from headrace.pipeline.view_tests.messages import read_outcome, read_test, written_outcome, written_test

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: A runner that takes longer than this is not waited for: a Spark of the command's own is as fast.
_ANSWER_S = 15.0
#: A test has several steps, and the first one of a runner compiles more than the others.
_TEST_ANSWER_S = 60.0


class Tested(NamedTuple):
    """:ivar outcome: None if there are problems."""

    problems: list[Problem]
    outcome: Outcome | None


# -------------------------------------------------------------------------------------------------------- the command


def check_in_runner(project: Path, views: Sequence[ViewToCheck]) -> Checked | None:
    """Checks views by the runner's Spark; returns None if no runner answers."""
    request = {"views": [_written(view.definition, sorted(view.invalid_fields)) for view in views]}
    answer = ask_runner(project, {"kind": "check", "version": version("headrace"), **request}, _ANSWER_S)
    if answer is None:
        return None
    problems = [_read_problem(each) for each in answer["problems"]]
    return Checked(problems, dict(answer["ways"]), dict(answer.get("notes", {})))


def explain_in_runner(project: Path, definition: ViewDefinition) -> Explained | None:
    """The explanation by the runner's Spark; None if no runner answers."""
    request = {"kind": "explain", "version": version("headrace"), "view": _written(definition, ())}
    answer = ask_runner(project, request, _ANSWER_S)
    if answer is None:
        return None
    return Explained([_read_problem(each) for each in answer["problems"]], answer["explanation"])


def run_test_in_runner(project: Path, run: Run, bootstrap: str) -> Tested | None:
    """The outcome of a test by the runner's Spark; None if no runner answers, or if its Spark is on other machines.

    :param bootstrap: a log of this machine that has none of the test's topics.
    """
    request = {"test": written_test(run.test), "bootstrap": bootstrap, "view": _written(run.definition, ())}
    answer = ask_runner(project, {"kind": "test", "version": version("headrace"), **request}, _TEST_ANSWER_S)
    if answer is None or answer.get("refused"):
        return None
    outcome = answer["outcome"]
    problems = [_read_problem(each) for each in answer["problems"]]
    return Tested(problems, None if outcome is None else read_outcome(outcome))


def _written(definition: ViewDefinition, invalid_fields: Sequence[str]) -> dict[str, object]:
    places = (definition.lines, definition.source_lines, *(source.lines for source in definition.sources))
    lines = [[[list(path), line] for path, line in each.items()] for each in places]
    return {"definition": definition.as_dict(), "lines": lines, "invalid_fields": list(invalid_fields)}


def _read_problem(values: dict[str, Any]) -> Problem:
    return Problem(Path(values["file"]), values["line"], values["message"], values["column"])


# --------------------------------------------------------------------------------------------------------- the runner


class AnsweringSpark(NamedTuple):
    """:ivar log_options: the options with which ``format("headrace")`` reaches the log of the project."""

    spark: SparkSession
    log_options: Mapping[str, str]


def answer_request(runner: AnsweringSpark, request: Message) -> Message:
    """
    :raises ProtocolError: if the request is not one of this version.
    """
    if (theirs := request.get("version")) != (ours := version("headrace")):
        raise ProtocolError(f"the runner is headrace {ours}, this command is {theirs}; use the same version")
    answer = _ANSWERS.get(str(request.get("kind")))
    if answer is None:
        raise ProtocolError(f"unknown request: {request.get('kind')!r}")
    return {"answer": answer(runner, request)}


def _check(runner: AnsweringSpark, request: Message) -> Message:
    from headrace.pipeline.maintenance.checks import check_views

    problems, ways, notes = check_views(runner.spark, [_read_view(each) for each in request["views"]])
    return {"problems": [_written_problem(problem) for problem in problems], "ways": ways, "notes": notes}


def _explain(runner: AnsweringSpark, request: Message) -> Message:
    definition = _read_view(request["view"]).definition
    problems, explanation = explain_view(runner.spark, definition, runner.log_options)
    return {"problems": [_written_problem(problem) for problem in problems], "explanation": explanation}


def _test(runner: AnsweringSpark, request: Message) -> Message:
    from headrace.pipeline.view_tests.running import run_test, spark_for_tests

    if not is_local(runner.spark.sparkContext.master or ""):  # executors elsewhere cannot reach the test's log
        return {"refused": True}
    definition, test = _read_view(request["view"]).definition, read_test(request["test"])
    try:
        outcome = run_test(spark_for_tests(runner.spark), str(request["bootstrap"]), test, definition)
    except ProjectError as error:
        return {"problems": [_written_problem(problem) for problem in error.problems], "outcome": None}
    return {"problems": [], "outcome": written_outcome(outcome)}


_ANSWERS: dict[str, Callable[[AnsweringSpark, Message], Message]] = {
    "check": _check,
    "explain": _explain,
    "test": _test,
}


def _read_view(values: dict[str, Any]) -> ViewToCheck:
    definition = ViewDefinition.from_dict(values["definition"])
    own, source, *others = [{tuple(path): int(line) for path, line in each} for each in values["lines"]]
    sources = tuple(replace(each, lines=lines) for each, lines in zip(definition.sources, others, strict=True))
    placed = replace(definition, lines=own, source_lines=source, sources=sources)
    return ViewToCheck(placed, frozenset(values["invalid_fields"]))


def _written_problem(problem: Problem) -> dict[str, object]:
    return {"file": str(problem.file), "line": problem.line, "message": problem.message, "column": problem.column}
