"""Finds the URL of the serving database: given directly, or in the settings of a project.

``sqlite:///FILE`` (relative to the folder of the project) or ``postgresql://USER:PASSWORD@HOST:PORT/DATABASE``. A
project has it in ``headrace.toml``, ``[serving] url``, which may refer to secrets (``secret_references.py``). Only that
setting is read here, so that a mistake in the file of a view does not prevent queries. No error shows the URL, because
it may contain a password.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from headrace.pipeline.secret_references import MissingSecret, with_secrets
from headrace.pipeline.serving.errors import ServingError

DEFAULT_SERVING_URL = "sqlite:///headrace-views.db"
PROJECT_FILE = "headrace.toml"
_USE = "sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE"


def parse_url(url: str, folder: Path | None = None) -> URL:
    """The URL for SQLAlchemy, with the driver that Headrace uses and an absolute path.

    :param folder: the folder of a relative path; by default the working directory.
    :raises ServingError: if the text is not a URL, or the database is not supported.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise ServingError(f"this is not the URL of a database: use {_USE}") from None
    backend = parsed.drivername.partition("+")[0]
    if backend in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    if backend != "sqlite":
        raise ServingError(f"{backend} is not supported as a serving database: use {_USE}")
    if not parsed.database or parsed.database == ":memory:":
        raise ServingError("several processes share the serving database, so SQLite needs a file: use sqlite:///FILE")
    path = (folder or Path.cwd()) / Path(parsed.database).expanduser()
    return parsed.set(drivername="sqlite", database=str(path.absolute()))


def serving_url(project_or_url: str | Path) -> str:
    """The URL itself, or the one of the project in that folder. A password in it is kept.

    :raises ServingError: if there is no URL that can be used.
    """
    if isinstance(project_or_url, str) and "://" in project_or_url:
        return parse_url(project_or_url).render_as_string(hide_password=False)
    folder = Path(project_or_url)
    file = folder / PROJECT_FILE
    try:
        settings = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError:
        raise ServingError(
            f"there is no {PROJECT_FILE} in {folder}: give the folder of a project ('headrace views "
            "init' creates one) or the URL of a database"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ServingError(f"{file}: {error}") from None
    section = settings.get("serving", {})
    url = section.get("url", DEFAULT_SERVING_URL) if isinstance(section, dict) else None
    if not isinstance(url, str):
        raise ServingError(f"{file}: [serving] url must be a text such as {DEFAULT_SERVING_URL!r}")
    try:
        url = with_secrets(url, folder.absolute(), os.environ)
    except MissingSecret as error:
        raise ServingError(f"{file}: [serving] url: {error}") from None
    return parse_url(url, folder.absolute()).render_as_string(hide_password=False)
