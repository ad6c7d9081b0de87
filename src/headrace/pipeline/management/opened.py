"""Opens a project for a command or for Python: its settings, its database and its catalog."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from headrace.pipeline.project.loading import load_settings
from headrace.pipeline.project.settings import Project
from headrace.pipeline.serving.catalog import Catalog
from headrace.pipeline.serving.database import Database


class OpenProject(NamedTuple):
    project: Project
    database: Database
    catalog: Catalog


@contextmanager
def open_folder(folder: str | Path) -> Iterator[OpenProject]:
    """Opens a project's settings and its catalog. It does not read the files of views.

    :raises ProjectError: if the settings have a problem.
    """
    project = load_settings(folder)
    database = Database(project.serving_url)
    try:
        yield OpenProject(project, database, Catalog(database))
    finally:
        database.close()


def is_running(project: Project) -> bool:
    """Whether ``headrace views run`` is running on the project."""
    from headrace.pipeline.runner.lock import is_taken

    return is_taken(project.serving_url)
