"""Checks a whole project before it is applied.

Problems come from three sources, in the order of their speed:

========================================  ===========================================================================
the files (``project.loading``)           at once
the SQL without Spark, and the broker     within a second; a broker that does not answer has ``BROKER_TIMEOUT_MS``,
for the topics (``check_quickly``)        if there is no other problem
Spark, which checks schemas and queries   seconds if Spark has to start (``check_by_spark``)
========================================  ===========================================================================

Spark does not start for a project with a problem that was found without Spark. If the Spark of ``headrace views run``
is available, it is asked in any case, and a view with a problem is checked as far as the rest of its file allows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from headrace.client.errors import HeadraceError
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.loading import Draft
from headrace.pipeline.project.settings import Project
from headrace.pipeline.project.toml_files import Problem
from headrace.pipeline.query.export_checks import export_problems
from headrace.pipeline.query.publish_checks import publish_problems, publish_topics
from headrace.pipeline.query.quick_checks import check_sql
from headrace.pipeline.query.validation import missing_topics
from headrace.pipeline.spark.options import short_client_options

BROKER_TIMEOUT_MS = 5_000
_SHORT_WAIT_S = 0.4


@dataclass(frozen=True)
class QuickResult:
    """The results of the checks without Spark.

    :param doubts: by the name of the view, what sqlglot rejects, and Spark may accept.
    """

    problems: list[Problem]
    doubts: dict[str, Problem]
    bad_queries: frozenset[str]


class ViewToCheck(NamedTuple):
    """:ivar invalid_fields: fields and tables of the view's file that have a problem already."""

    definition: ViewDefinition
    invalid_fields: Collection[str]


class Checked(NamedTuple):
    """The results of Spark's checks of views.

    :ivar ways: by the name of a view without problems, how its answer is kept up to date.
    :ivar notes: by the name of a view, what its user should know before it runs.
    """

    problems: list[Problem]
    ways: dict[str, str]
    notes: Mapping[str, str] = {}


CheckBySpark = Callable[[list[ViewToCheck]], Checked]


def check_quickly(draft: Draft, *, broker_timeout_ms: int = BROKER_TIMEOUT_MS) -> QuickResult:
    """The problems of the files, of the SQL as far as it can be checked without Spark, and of the topics.

    If there are other problems, a broker that does not answer at once is not waited for.
    """
    asked = _ask_broker(draft, broker_timeout_ms)
    problems, doubts, bad = list(draft.problems), {}, set()
    problems += export_problems(draft.project.views.values(), draft.project.folder)
    for name, view in draft.project.views.items():
        if "query" in draft.invalid_fields[name]:
            continue
        found = check_sql(view)
        if found.problem is not None:
            bad.add(name)
            problems.append(found.problem)
        elif found.doubt is not None:
            doubts[name] = found.doubt
    # The query of a view on views cannot be checked by Spark if a query that it reads has a problem.
    bad |= {
        name
        for name, view in draft.project.views.items()
        if any(each.name in bad or "query" in draft.invalid_fields.get(each.name, ()) for each in view.views)
    }
    with suppress(TimeoutError):
        problems += asked.result(_SHORT_WAIT_S if problems else None)
    return QuickResult(in_order(draft, problems), doubts, frozenset(bad))


def _ask_broker(draft: Draft, timeout_ms: int) -> Future[list[Problem]]:
    """Asks on a thread that does not keep the program from ending."""
    asked: Future[list[Problem]] = Future()

    def work() -> None:
        try:
            asked.set_result(_topic_problems(draft, timeout_ms))
        except Exception as error:  # noqa: BLE001  raised again by result()
            asked.set_exception(error)

    threading.Thread(target=work, name="topics", daemon=True).start()
    return asked


def check_by_spark(draft: Draft, quick: QuickResult, names: Iterable[str], check: CheckBySpark) -> Checked:
    """Checks the views with these names by Spark."""
    views = [
        ViewToCheck(draft.project.views[name], {*fields, *({"query"} if name in quick.bad_queries else ())})
        for name in names
        if "decode" not in (fields := draft.invalid_fields[name])
    ]
    return check(views) if views else Checked([], {})


def spark_missing(draft: Draft, error: HeadraceError) -> Problem:
    """The problem that Spark does not start."""
    return Problem(draft.settings.path, draft.settings.line("spark"), str(error))


def in_order(draft: Draft, problems: Iterable[Problem]) -> list[Problem]:
    """Each problem once, by file and line."""
    folder = draft.project.folder
    return sorted(dict.fromkeys(problems), key=lambda problem: (str(folder / problem.file), problem.line or 0))


def _topic_problems(draft: Draft, timeout_ms: int) -> list[Problem]:
    project, settings = draft.project, draft.settings
    if "log" in settings.invalid_fields or not project.views:
        return []
    try:
        topics, policies = _topics_at(project, timeout_ms)
    except HeadraceError as error:
        advice = "start the broker, or correct [log] bootstrap"
        message = f"cannot list the topics at {project.bootstrap}: {error} To check topics, {advice}"
        return [Problem(settings.path, settings.line("log", "bootstrap"), message)]
    missing = [problem for view in project.views.values() for problem in missing_topics(view, topics)]
    return missing + publish_problems(project.views.values(), policies)


def _topics_at(project: Project, timeout_ms: int) -> tuple[Collection[str], dict[str, str]]:
    """The topics, and the ``cleanup.policy`` of those that views are published to."""
    from headrace.client.admin.sync_admin import Admin
    from headrace.pipeline.changes.published_topic import policy_of

    # The timeout of the whole client, not of one call: opening the client asks the broker too.
    config = {"default.api.timeout.ms": str(timeout_ms), "bootstrap.servers": project.bootstrap}
    with Admin(short_client_options(project.log_options) | config) as admin:
        topics = list(admin.list_topics())
        wanted = publish_topics(project.views.values()) & set(topics)
        return topics, {topic: policy_of(admin, topic) for topic in sorted(wanted)}
