"""``headrace views init``: creates an example project: two views over clicks, their tests, and a script."""

from __future__ import annotations

import json
from argparse import Namespace
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from headrace.tools.shared.commands import DEFAULT_BOOTSTRAP_SERVER, CommandError, Output

_EXAMPLE = "example_project"
_TOPICS = {"clicks": 4, "clicks.dead": 1}


def init(options: Namespace, out: Output) -> None:
    folder = Path(options.folder)
    if (folder / "headrace.toml").exists():
        raise CommandError(f"{folder} has a project already; nothing was changed")
    if options.create_topics:
        _create_topics(options.bootstrap_server, out)
    for name, text in _files(files("headrace.tools.views") / _EXAMPLE):
        _write(folder / name, text.replace(json.dumps(DEFAULT_BOOTSTRAP_SERVER), json.dumps(options.bootstrap_server)))
    where = "" if folder.resolve() == Path.cwd() else f" --project {folder}"
    out.say(
        f"created a project in {folder}: headrace.toml, views/pages.toml (lambda), views/users.toml (kappa), tests, "
        "produce.py"
    )
    if not options.create_topics:
        out.say("create its topics with: headrace topics --create --topic clicks --partitions 4")
    out.say(f"try its tests: headrace views test{where}")
    out.say(f"next: headrace views apply{where}; headrace views run{where}; python {folder / 'produce.py'}")


def _files(folder: Traversable, under: str = "") -> list[tuple[str, str]]:
    found = []
    for each in folder.iterdir():
        if each.is_dir() and each.name != "__pycache__":
            found += _files(each, f"{under}{each.name}/")
        elif each.is_file() and each.name != "__init__.py":
            found.append((under + each.name, each.read_text(encoding="utf-8")))
    return sorted(found)


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise CommandError(f"{path} exists already, and is not overwritten") from None
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from None


def _create_topics(bootstrap: str, out: Output) -> None:
    from headrace import Admin
    from headrace.client.admin.types import NewTopic
    from headrace.client.errors import TopicExists

    with Admin(bootstrap_servers=bootstrap, enable_metrics_push=False) as admin:
        made = admin.create_topics([NewTopic(name, partitions) for name, partitions in _TOPICS.items()])
    for name, outcome in made.items():
        if isinstance(outcome, TopicExists):
            out.say(f"the topic {name} exists already")
        elif isinstance(outcome, Exception):
            raise outcome
        else:
            out.say(f"created the topic {name}")
