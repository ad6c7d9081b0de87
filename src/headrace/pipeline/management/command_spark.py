"""The Spark of a command: that of a running ``headrace views run``, or one that the command starts."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.client.errors import HeadraceError
from headrace.pipeline.project.loading import Draft
from headrace.pipeline.project.toml_files import Problem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.pipeline.maintenance.explanation import Explained
    from headrace.pipeline.project.definition import ViewDefinition
    from headrace.pipeline.query.project_checks import Checked, ViewToCheck

_MASTER = "local[1]"


class CommandSpark:
    """
    :param master: Spark's master, if the command is to start its own Spark in any case.
    :param note: tells the user what takes a while.
    """

    def __init__(self, draft: Draft, master: str | None, note: Callable[[str], None]) -> None:
        self._draft, self._master, self._note = draft, master, note
        self._folder = draft.project.folder

    @cached_property
    def is_shared(self) -> bool:
        """Whether a runner answers."""
        from headrace.pipeline.shared_spark.requests import check_in_runner

        return self._master is None and check_in_runner(self._folder, []) is not None

    def confirmed(self, doubts: Mapping[str, Problem]) -> list[Problem]:
        """Those views that Spark's parser rejects too. Tells the user of the doubts at once, because it takes a while.

        :param doubts: by the name of a view, what sqlglot rejects.
        """
        if not doubts or self.is_shared:
            return []
        for doubt in doubts.values():
            placed = replace(doubt, file=shown_path(self._folder / doubt.file))
            self._note(f"{placed}; asking Spark's own parser")
        from headrace.pipeline.spark.sql_parser import syntax_problems

        queries = {name: self._draft.project.views[name].query for name in doubts}
        found = syntax_problems({name: query.text for name, query in queries.items()}) or {}
        return [
            Problem(Path(queries[name].file), line, problem.message, column)
            for name, problem in found.items()
            if problem is not None
            for line, column in [problem.place or (None, None)]
        ]

    def checked(self, views: list[ViewToCheck]) -> Checked:
        """Checks these views by Spark."""
        from headrace.pipeline.maintenance.checks import check_views
        from headrace.pipeline.query.project_checks import Checked, spark_missing

        if self.is_shared and (found := self._asked(views)) is not None:
            return found
        try:
            with self.own_session() as spark:
                return check_views(spark, views)
        except HeadraceError as error:
            return Checked([spark_missing(self._draft, error)], {})

    def checked_by_runner(self, views: list[ViewToCheck]) -> Checked:
        """Checks these views by the runner's Spark; returns nothing if no runner answers."""
        from headrace.pipeline.query.project_checks import Checked

        return self._asked(views) or Checked([], {})

    def _asked(self, views: list[ViewToCheck]) -> Checked | None:
        from headrace.pipeline.shared_spark.requests import check_in_runner

        return check_in_runner(self._folder, views)

    def explained(self, definition: ViewDefinition) -> Explained:
        """
        :raises SparkMissing: if Spark does not start.
        """
        from headrace.pipeline.maintenance.explanation import explain_view
        from headrace.pipeline.shared_spark.requests import explain_in_runner
        from headrace.pipeline.version.context import log_options

        found = explain_in_runner(self._folder, definition) if self.is_shared else None
        if found is not None:
            return found
        with self.own_session() as spark:
            return explain_view(spark, definition, log_options(self._draft.project, spark))

    @contextmanager
    def own_session(self) -> Iterator[SparkSession]:
        """
        :raises SparkMissing: if Spark does not start, or if this process has a session of Spark, which a check would
            change and stop.
        """
        from headrace.pipeline.spark.session import SparkMissing, open_session

        if _has_session():
            raise SparkMissing(
                "this process has a session of Spark, and Headrace needs its own: stop it, or start 'headrace views "
                "run', whose Spark is then used"
            )
        self._note("starting Spark to check the queries, which takes some seconds")
        logging.getLogger("py4j").setLevel(logging.ERROR)
        project = self._draft.project
        session = open_session(project, self._master or _MASTER, log_name="spark-apply.log", is_short=True)
        try:
            yield session
        finally:
            session.stop()


def _has_session() -> bool:
    """Whether this process, a notebook for example, uses Spark itself."""
    if "pyspark" not in sys.modules:
        return False
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is not None


def shown_path(path: Path) -> Path:
    """The path relative to the current folder, if it is inside."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else Path(relative)
