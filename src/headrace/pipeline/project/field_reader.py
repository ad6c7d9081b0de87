"""Reads the fields that the files of views and of sources have in common: topics, the watermark, names of files.

Each problem is added to the ``TomlFile`` with its line. A field with a problem gets its default or stays empty, so that
the rest of the file can still be checked.
"""

from __future__ import annotations

import ast
import base64
import re
from pathlib import Path

from headrace.pipeline.project.decode import FileText
from headrace.pipeline.project.definition import duration_ms
from headrace.pipeline.project.source_definition import Watermark
from headrace.pipeline.project.toml_files import Problem, Section, TomlFile, did_you_mean

FUNCTION = re.compile(r"(?P<file>.+\.py):(?P<function>[A-Za-z_]\w*)")
TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


class FieldReader:
    """
    :param folder: the folder of the project. Messages name files relative to it.
    """

    def __init__(self, folder: Path, file: TomlFile) -> None:
        self.folder, self.file = folder, file
        self.top = file.section()

    def relative(self, path: Path) -> Path:
        return path.relative_to(self.folder) if path.is_relative_to(self.folder) else path

    def required(self, section: Section, name: str, choices: tuple[str, ...] = ()) -> str:
        known = len(self.file.problems)
        value = section.text(name, "", choices)
        if not value and len(self.file.problems) == known:
            offer = f": {' or '.join(choices)}" if choices else ""
            section.report(name, f"{name} is missing{offer}")
        return value

    def duration(self, section: Section, name: str, text: str) -> int:
        """Milliseconds."""
        try:
            return duration_ms(text) if text else 0
        except ValueError as error:
            section.report(name, f"{name}: {error}")
            return 0

    def topics(self) -> tuple[tuple[str, ...], str]:
        """The topics, or the pattern of their names."""
        topics, pattern = self.top.texts("topics"), self.top.text("pattern")
        if bool(topics) == bool(pattern):
            either = 'set topics = ["clicks"] or pattern = "clicks-.*"'
            self.top.report("pattern", f"{either}{', not both' if topics else ''}")
        for topic in topics:
            if not TOPIC.fullmatch(topic):
                self.top.report(
                    "topics", f"{topic!r} is not the name of a topic: use letters, digits, '.', '_' and '-'"
                )
        try:
            re.compile(pattern)
        except re.error as error:
            self.top.report("pattern", f"pattern is not a regular expression: {error}")
            pattern = ""
        return tuple(topic for topic in topics if TOPIC.fullmatch(topic)), pattern

    def dead_letters(self, topics: tuple[str, ...]) -> str:
        topic = self.top.text("dead_letters")
        if topic and topic in topics:
            reader = "source" if self.file.path.parent.name == "sources" else "view"
            message = f"dead_letters cannot be {topic!r}, because the {reader} reads this topic"
            self.file.report(message, "dead_letters")
        return topic

    def watermark(self) -> Watermark | None:
        section = self.file.section("watermark")
        if "watermark" not in self.file.content:
            return None
        made = Watermark(self.required(section, "column"), self.required(section, "delay"))
        self.duration(section, "delay", made.delay)
        section.finish()
        return None if "watermark" in self.file.invalid_fields else made

    # ------------------------------------------------------------------------------------------------- other files

    def text(self, section: Section, name: str, value: str) -> FileText:
        """The content of the file that a field names, ``pages.sql`` or ``queries.py:pages``."""
        if not value:
            return FileText("", "")
        python = FUNCTION.fullmatch(value)
        path = self.file.path.parent / (python["file"] if python else value)
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            section.report(name, f"{name}: cannot read {self.relative(path)}: {error.strerror}")
            text = ""
        except UnicodeDecodeError:
            section.report(name, f"{name}: {self.relative(path)} is not UTF-8")
            text = ""
        if python and text:
            self._check_function(section, name, path, text, python["function"])
        return FileText(str(self.relative(path)), text, python["function"] if python else "")

    def content(self, section: Section, name: str, value: str) -> str:
        """The bytes of the file that a field names, in base64."""
        path = self.file.path.parent / value
        try:
            return base64.b64encode(path.read_bytes()).decode() if value else ""
        except OSError as error:
            section.report(name, f"{name}: cannot read {self.relative(path)}: {error.strerror}")
            return ""

    def _check_function(self, section: Section, name: str, path: Path, text: str, function: str) -> None:
        try:
            tree = ast.parse(text)
        except SyntaxError as error:
            section.add_problem(name, Problem(path, error.lineno, f"not Python: {error.msg}"))
            return
        known = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        assigned = [target.id for node in tree.body if isinstance(node, ast.Assign) for target in node.targets
                    if isinstance(target, ast.Name)]  # fmt: skip
        if function not in (*known, *assigned):
            hint = did_you_mean(function, known)
            section.report(name, f"{self.relative(path)} has no function {function!r}{hint}")
