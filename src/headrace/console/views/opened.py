"""Holds an open project: its catalog, its queries, the client of its log, and the rates of its versions."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from headrace.console.views.rates import Rates
from headrace.pipeline.management.opened import OpenProject, open_folder
from headrace.pipeline.management.progress import LogEnds, open_log
from headrace.pipeline.serving.queries.large_answers import LargeAnswers
from headrace.pipeline.serving.queries.query import QueryService


@dataclass(frozen=True)
class Opened:
    """
    :param log: only for who holds ``log_lock``.
    :param plan_lock: held by the question about a plan that runs.
    """

    here: OpenProject
    log: LogEnds
    queries: QueryService
    answers: LargeAnswers
    rates: Rates = field(default_factory=Rates)
    log_lock: threading.Lock = field(default_factory=threading.Lock)
    plan_lock: threading.Lock = field(default_factory=threading.Lock)


@contextmanager
def open_views(folder: Path) -> Iterator[Opened]:
    """
    :raises ProjectError: if the settings have a problem.
    """
    with open_folder(folder) as here, open_log(here.project) as log:
        queries = QueryService(here.project.serving_url)
        answers = LargeAnswers(queries)
        try:
            yield Opened(here, log, queries, answers)
        finally:
            answers.close()
            queries.close()
