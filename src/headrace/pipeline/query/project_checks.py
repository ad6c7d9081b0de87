"""Checks a whole project before it is applied, and returns all problems in one list.

Problems come from three sources: the files (``project.loading.read_project``), the broker, which knows the topics, and
Spark, which checks schemas and queries. No source waits until another one has no problems: the broker is asked while
Spark starts, and a view with a problem in its file is checked as far as the rest of the file allows.

The broker has ``BROKER_TIMEOUT_MS`` to answer. If it does not answer, the other problems are still returned.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from headrace.client.errors import HeadraceError
from headrace.pipeline.project.loading import Draft
from headrace.pipeline.project.settings import Project
from headrace.pipeline.project.toml_files import Problem
from headrace.pipeline.query.validation import missing_topics, spark_problems
from headrace.pipeline.spark.options import shared_client_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BROKER_TIMEOUT_MS = 5_000

#: Opens a session for the time of the checks.
OpenSpark = Callable[[], AbstractContextManager["SparkSession"]]


def check_project(draft: Draft, open_spark: OpenSpark, *, broker_timeout_ms: int = BROKER_TIMEOUT_MS) -> list[Problem]:
    """All problems of the project, sorted by file and line."""
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(_topic_problems, draft, broker_timeout_ms)
        problems = draft.problems + _spark_problems(draft, open_spark) + asked.result()
    folder = draft.project.folder
    return sorted(problems, key=lambda problem: (str(folder / problem.file), problem.line or 0))


def _spark_problems(draft: Draft, open_spark: OpenSpark) -> list[Problem]:
    invalid_fields = draft.invalid_fields
    views = [view for view in draft.project.views.values() if "decode" not in invalid_fields[view.name]]
    if not views:
        return []
    try:
        with open_spark() as spark:
            return [problem for view in views for problem in spark_problems(spark, view, invalid_fields[view.name])]
    except HeadraceError as error:  # Spark does not start; the problems of the other sources are still returned
        return [Problem(draft.settings.path, draft.settings.line("spark"), str(error))]


def _topic_problems(draft: Draft, timeout_ms: int) -> list[Problem]:
    project, settings = draft.project, draft.settings
    if "log" in settings.invalid_fields or not project.views:
        return []
    try:
        topics = _topics_at(project, timeout_ms)
    except HeadraceError as error:
        advice = "start the broker, or correct [log] bootstrap"
        message = f"cannot list the topics at {project.bootstrap}: {error} To check topics, {advice}"
        return [Problem(settings.path, settings.line("log", "bootstrap"), message)]
    return [problem for view in project.views.values() for problem in missing_topics(view, topics)]


def _topics_at(project: Project, timeout_ms: int) -> Collection[str]:
    from headrace.client.admin.sync_admin import Admin

    # The timeout of the whole client, not of one call: opening the client asks the broker too.
    config = {"default.api.timeout.ms": str(timeout_ms), "bootstrap.servers": project.bootstrap}
    with Admin(shared_client_options(project.log_options) | config) as admin:
        return list(admin.list_topics())
