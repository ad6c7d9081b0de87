"""Runs tests of views in this process: with Spark, and a broker of its own for each test.

``ViewTests`` reads the files of a project and runs their tests, or tests that are written in Python. The pytest fixture
``headrace_views`` is one of these. ``view_tests`` gives the tests of a project to ``pytest.mark.parametrize``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.pipeline.project.loading import Draft, read_project
from headrace.pipeline.project.toml_files import Problem, ProjectError
from headrace.pipeline.view_tests.cases import FoundRows, Outcome, Run
from headrace.pipeline.view_tests.documents import Document, files_with_tests, read_document
from headrace.pipeline.view_tests.reading import read_tests

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.pipeline.project.settings import Project

#: Records of a test may have any time. A broker must not delete or reject them for it.
BROKER_SETTINGS = {"log.retention.ms": -1, "log.message.timestamp.after.max.ms": 1 << 62}
_MASTER = "local[1]"
#: PySpark asks the Java process several questions for each column of an expression, to name its line in errors.
_QUICK = {"spark.python.sql.dataFrameDebugging.enabled": "false"}


class FileTest:
    """A test in a file of a project."""

    def __init__(self, run: Run, document: Document) -> None:
        self.run, self.document = run, document

    def __repr__(self) -> str:
        return self.run.test.label


def read_file_tests(draft: Draft, files: Sequence[Path] | None = None) -> tuple[list[FileTest], list[Problem]]:
    """The tests of a project, and the mistakes in their files. Needs no Spark.

    :param files: only these files.
    """
    tests: list[FileTest] = []
    problems: list[Problem] = []
    for path in files_with_tests(draft.project.folder) if files is None else files:
        document = read_document(path)
        tests += [FileTest(run, document) for run in read_tests(document, draft.project.views)]
        problems += document.problems
    return tests, problems


def view_tests(project: str | Path = ".") -> list[FileTest]:
    """The tests in the files of a project, for ``pytest.mark.parametrize("test", view_tests("shop"), ids=str)``.

    :raises ProjectError: if a file of the project or of its tests has a mistake.
    """
    draft = read_project(project)
    tests, problems = read_file_tests(draft)
    if found := [*draft.problems, *problems]:
        raise ProjectError(found)
    return tests


class LocalHarness:
    """Runs tests with a Spark of this process.

    :param spark: with the data source ``headrace`` (``headrace.pipeline.register``).
    """

    def __init__(self, spark: SparkSession) -> None:
        from headrace.pipeline.view_tests.running import spark_for_tests

        self._spark = spark_for_tests(spark)

    def run(self, run: Run) -> Outcome:
        """
        :raises ProjectError: if the view cannot run its query.
        """
        from headrace.embedded import Broker
        from headrace.pipeline.view_tests.running import run_test

        with Broker(config=BROKER_SETTINGS) as broker:
            return run_test(self._spark, broker.bootstrap_servers, run.test, run.definition)


class ViewTests:
    """Tests of views for pytest: the fixture ``headrace_views``."""

    def __init__(self) -> None:
        self._harness: LocalHarness | None = None
        self._own_spark: SparkSession | None = None

    def close(self) -> None:
        if self._own_spark is not None:
            self._own_spark.stop()

    def check(self, test: FileTest) -> None:
        """Runs a test of a file.

        :raises AssertionError: with the difference, if the view does not show the expected rows.
        :raises ProjectError: if the view or the test has a mistake.
        """
        from headrace.pipeline.view_tests.report_text import result_lines
        from headrace.pipeline.view_tests.results import check_outcome

        result = check_outcome(test.run.test, self._outcome(test.run, test.document.path.parent.parent), test.document)
        if result.problems:
            raise ProjectError(result.problems)
        if not result.is_passed:
            raise AssertionError("\n".join(result_lines(result, str(test.document.path))))

    def steps(self, project: str | Path, view: str, steps: Sequence[Mapping[str, Any]]) -> None:
        """Runs a test that is written in Python: steps with the fields that a step has in a file.

        ``steps=[{"records": {"orders": [{"order_id": 1}]}, "rows": [{"orders": 1}]}]``

        :raises AssertionError: with the difference, if the view does not show the expected rows.
        :raises ProjectError: if the view or the test has a mistake.
        """
        self.check(_written_in_python(read_project(project), view, steps))

    def rows(self, project: str | Path, view: str, records: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Any]:
        """The rows of a view after these records of its sources, each as a dict by column.

        Times, dates and decimals are texts, as ``headrace query --json`` prints them.

        :raises AssertionError: if the architectures differ, or the view is not Spark's batch answer.
        :raises ProjectError: if the view or a record has a mistake.
        """
        test = _written_in_python(read_project(project), view, [{"records": records}])
        outcome = self._outcome(test.run, Path(project))
        self._check_outcome(test, outcome)
        found: FoundRows = next(each for each in outcome.architectures if not each.skipped).steps[-1]
        return [dict(zip(outcome.columns.names, row, strict=True)) for row in found.rows]

    def _check_outcome(self, test: FileTest, outcome: Outcome) -> None:
        from headrace.pipeline.view_tests.report_text import result_lines
        from headrace.pipeline.view_tests.results import check_outcome

        result = check_outcome(test.run.test, outcome, test.document)
        if not result.is_passed:
            raise AssertionError("\n".join(result_lines(result, str(test.document.path))))

    def _outcome(self, run: Run, folder: Path) -> Outcome:
        if self._harness is None:
            self._harness = LocalHarness(self._spark(folder))
        return self._harness.run(run)

    def _spark(self, folder: Path) -> SparkSession:
        """The session of this process, or a new one."""
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        from headrace.pipeline import register

        active = SparkSession.getActiveSession()
        if active is not None:
            with suppress(PySparkException):  # it has the data source already
                register(active)
            return active
        self._own_spark = open_test_session(read_project(folder).project)
        return self._own_spark


def open_test_session(project: Project, master: str | None = None) -> SparkSession:
    """
    :raises SparkMissing: if Spark does not start.
    """
    from headrace.pipeline.spark.session import open_session

    quick = replace(project, spark_conf={**_QUICK, **project.spark_conf})
    return open_session(quick, master or _MASTER, log_name="spark-test.log", is_short=True)


def _written_in_python(draft: Draft, view: str, steps: Sequence[Mapping[str, Any]]) -> FileTest:
    content = {"view": view, "test": [{"name": "steps", "step": [dict(step) for step in steps]}]}
    document = Document(draft.project.folder / "tests" / "in Python", content=content)
    tests = read_tests(document, draft.project.views)
    if found := [*draft.problems, *document.problems]:
        raise ProjectError(found)
    return FileTest(tests[0], document)
