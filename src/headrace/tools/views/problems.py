"""Prints the problems of a project."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path

from headrace.pipeline.management.command_spark import shown_path
from headrace.pipeline.project.toml_files import Problem
from headrace.tools.shared.commands import Output


def show_problems(out: Output, problems: Iterable[Problem], folder: Path | None = None) -> None:
    """Prints a line per problem, with a path relative to the current folder."""
    found = [replace(problem, file=shown_path(problem.file if folder is None else folder / problem.file))
             for problem in problems]  # fmt: skip
    if out.as_json and found:
        out.show({"problems": [asdict(problem) | {"file": str(problem.file)} for problem in found]}, "")
        return
    for problem in found:
        out.complain(str(problem))
