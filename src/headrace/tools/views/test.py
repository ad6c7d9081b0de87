"""``headrace views test``: runs the tests in ``tests/`` of a project: records in, rows out.

Mistakes in files are printed without Spark, and end the command with exit code 2. The tests then use the Spark of a
running ``headrace views run``, or one that the command starts. The log of a test is a broker in this process, and its
serving database is a temporary file: neither the project's log nor its database is touched.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.pipeline.management.command_spark import shown_path
from headrace.pipeline.project.loading import VIEWS_FOLDER, Draft, read_project
from headrace.pipeline.project.toml_files import Problem, ProjectError, did_you_mean
from headrace.pipeline.view_tests.documents import TESTS_FOLDER, Document, files_with_tests, read_document
from headrace.testing.view_harness import BROKER_SETTINGS, FileTest, read_file_tests
from headrace.tools.shared.commands import FAILED, WRONG_USE, CommandError, Output, UsageError
from headrace.tools.views.problems import show_problems

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.pipeline.project.definition import ViewDefinition
    from headrace.pipeline.view_tests.cases import Outcome
    from headrace.pipeline.view_tests.places import Path as Place
    from headrace.pipeline.view_tests.results import Result
    from headrace.testing.view_harness import LocalHarness


@dataclass
class _Tested:
    """A test that ran.

    :ivar outcome: None if the view cannot run its query.
    """

    test: FileTest
    result: Result
    outcome: Outcome | None


def test(options: Namespace, out: Output) -> int | None:
    draft = read_project(options.project)
    tests, problems = _selected(draft, options)
    if problems:
        show_problems(out, problems)
        return WRONG_USE
    if not tests:
        _show_nothing(out, draft, options)
        return None
    began = time.monotonic()
    ran = _run(draft, tests, options, out)
    if options.update:
        ran = iter(_updated(list(ran), draft.project.views, out))
    done = [_shown(each, out) for each in ran]
    _finish(done, options, out, time.monotonic() - began)
    if any(each.result.problems for each in done):
        show_problems(out, [problem for each in done for problem in each.result.problems], draft.project.folder)
        return WRONG_USE
    return None if all(each.result.is_passed for each in done) else FAILED


# ------------------------------------------------------------------------------------------------------- what is tested


def _selected(draft: Draft, options: Namespace) -> tuple[list[FileTest], list[Problem]]:
    """The tests to run, and all mistakes that concern them and are found without Spark."""
    folder, views = draft.project.folder, set(options.views)
    for name in options.views:
        if not (folder / VIEWS_FOLDER / f"{name}.toml").exists():
            hint = did_you_mean(name, draft.project.views)
            raise UsageError(f"there is no view {name!r} in {folder / VIEWS_FOLDER}{hint}")
    files = [path for path in files_with_tests(folder) if not views or _concerns(path, views)]
    tests, problems = read_file_tests(draft, files)
    tests = [each for each in tests if not views or each.run.test.view in views]
    if options.text:
        tests = [each for each in tests if options.text.lower() in _searched(each).lower()]
    tested = views or {each.run.test.view for each in tests}
    return tests, [*_of_views(draft, tested), *problems]


def _searched(test: FileTest) -> str:
    return f"{test.document.path.name} {test.run.test.label}"


def _concerns(path: Path, views: set[str]) -> bool:
    """Whether a file has, or may have, tests of these views."""
    document = read_document(path)
    if document.problems:
        return True
    content = document.content
    named = {content.get("view", path.stem)}
    tests = content.get("test", [])
    if isinstance(tests, list):
        named |= {each["view"] for each in tests if isinstance(each, dict) and isinstance(each.get("view"), str)}
    return bool(named & views)


def _of_views(draft: Draft, tested: set[str]) -> Iterator[Problem]:
    """The problems of the project, without those of views that are not tested."""
    from headrace.pipeline.query.quick_checks import check_sql

    folder, views = draft.project.folder, draft.project.views
    own = {folder / VIEWS_FOLDER / f"{name}.toml" for name in tested}
    own |= {folder / views[name].query.file for name in tested if name in views}
    others = set((folder / VIEWS_FOLDER).glob("*.toml")) | {folder / view.query.file for view in views.values()}
    for problem in draft.problems:
        if folder / problem.file not in others - own:
            yield replace(problem, file=folder / problem.file)
    for name in sorted(tested & views.keys()):
        found = check_sql(views[name]).problem if "query" not in draft.invalid_fields[name] else None
        if found is not None:
            yield replace(found, file=folder / found.file)


def _show_nothing(out: Output, draft: Draft, options: Namespace) -> None:
    folder = shown_path(draft.project.folder / TESTS_FOLDER)
    which = " that fit" if options.views or options.text else ""
    out.show({"tests": [], "passed": 0, "failed": 0}, f"there are no tests{which} in {folder}")


# -------------------------------------------------------------------------------------------------------------- running


def _run(draft: Draft, tests: Sequence[FileTest], options: Namespace, out: Output) -> Iterator[_Tested]:
    from headrace.pipeline.view_tests.results import Result, check_outcome

    harness = _Harness(draft, options.master, out)
    try:
        for each in tests:
            try:
                outcome: Outcome = harness.run(each)
            except ProjectError as error:
                yield _Tested(each, Result(each.run.test, problems=tuple(error.problems)), None)
                continue
            yield _Tested(each, check_outcome(each.run.test, outcome, each.document), outcome)
    finally:
        harness.close()


class _Harness:
    """Runs tests with the Spark of the runner, as long as it answers, then with a Spark of this command."""

    def __init__(self, draft: Draft, master: str | None, out: Output) -> None:
        self._draft, self._master, self._out = draft, master, out
        self._own: LocalHarness | None = None
        self._session: SparkSession | None = None
        self._can_share = master is None

    def run(self, test: FileTest) -> Outcome:
        """
        :raises ProjectError: if the view cannot run its query.
        """
        if self._can_share and self._own is None:
            found = self._shared(test)
            if found is not None:
                return found
            self._can_share = False
        return self._local().run(test.run)

    def _shared(self, test: FileTest) -> Outcome | None:
        from headrace.pipeline.shared_spark.client import has_runner
        from headrace.pipeline.shared_spark.requests import run_test_in_runner

        folder = self._draft.project.folder
        if not has_runner(folder):
            return None
        from headrace.embedded import Broker

        with Broker(config=BROKER_SETTINGS) as broker:
            found = run_test_in_runner(folder, test.run, broker.bootstrap_servers)
        if found is None:
            return None
        if found.outcome is None:
            raise ProjectError(found.problems)
        return found.outcome

    def _local(self) -> LocalHarness:
        if self._own is None:
            import logging

            from headrace.testing.view_harness import LocalHarness, open_test_session

            self._out.note("starting Spark to run the tests, which takes some seconds")
            for name in ("py4j", "headrace.views", "headrace.pipeline"):  # failures are in the results
                logging.getLogger(name).setLevel(logging.ERROR)
            self._session = open_test_session(self._draft.project, self._master)
            self._own = LocalHarness(self._session)
        return self._own

    def close(self) -> None:
        if self._session is not None:
            self._session.stop()


# ------------------------------------------------------------------------------------------------------------- updating


def _updated(done: Sequence[_Tested], views: Mapping[str, ViewDefinition], out: Output) -> list[_Tested]:
    """Writes the rows of failed tests into their files, and checks the tests again by the files as they are then."""
    found = list(done)
    for path in dict.fromkeys(each.test.document.path for each in done):
        of_file = [at for at, each in enumerate(found) if each.test.document.path == path]
        text = _updated_text([found[at] for at in of_file])
        if text is None:
            continue
        from headrace.pipeline.view_tests.updating import write_text

        try:
            write_text(path, text)
        except OSError as error:
            raise CommandError(f"cannot write {path}: {error.strerror}") from None
        out.note(f"updated {shown_path(path)}")
        document = read_document(path)
        for at in of_file:
            found[at] = _checked_again(found[at], document, views)
    return found


def _updated_text(tested: Sequence[_Tested]) -> str | None:
    """The new text of a file; None if it stays."""
    from headrace.pipeline.view_tests.results import changes_of
    from headrace.pipeline.view_tests.updating import NotUpdated, updated_text

    rows: dict[Place, tuple[Any, list[Any]]] = {}
    counts: dict[Place, int] = {}
    for each in tested:
        if each.outcome is not None:
            found = changes_of(each.result, each.outcome)
            rows |= found.rows
            counts |= found.dead_letters
    if not rows and not counts:
        return None
    document = tested[0].test.document
    try:
        return updated_text(document, rows, counts)
    except NotUpdated as error:
        raise CommandError(f"{shown_path(document.path)}: {error}") from None


def _checked_again(tested: _Tested, document: Document, views: Mapping[str, ViewDefinition]) -> _Tested:
    from headrace.pipeline.view_tests.reading import read_tests
    from headrace.pipeline.view_tests.results import check_outcome

    if tested.outcome is None:
        return tested
    old = tested.test.run.test
    (run,) = [each for each in read_tests(document, views) if each.test.label == old.label]
    return _Tested(FileTest(run, document), check_outcome(run.test, tested.outcome, document), tested.outcome)


# -------------------------------------------------------------------------------------------------------------- showing


def _shown(tested: _Tested, out: Output) -> _Tested:
    from headrace.pipeline.view_tests.report_text import result_lines

    file = str(shown_path(tested.test.document.path))
    for line in result_lines(tested.result, file):
        out.say(line)
    return tested


def _finish(done: Sequence[_Tested], options: Namespace, out: Output, seconds: float) -> None:
    from headrace.pipeline.view_tests.junit import write_junit
    from headrace.pipeline.view_tests.report_text import as_json, summary_line

    results = [each.result for each in done]
    files = [str(shown_path(each.test.document.path)) for each in done]
    if options.junit is not None:
        try:
            write_junit(Path(options.junit), results, files)
        except OSError as error:
            raise CommandError(f"cannot write {options.junit}: {error.strerror}") from None
    passed = sum(result.is_passed for result in results)
    value = {
        "tests": [as_json(result, file) for result, file in zip(results, files, strict=True)],
        "passed": passed,
        "failed": len(results) - passed,
        "seconds": round(seconds, 3),
    }
    out.show(value, summary_line(results, seconds))
