"""Reads the file of one view, ``views/NAME.toml``, and makes a definition from it.

::

    topics or pattern, architecture, query, key, dead_letters
    [decode]     format, schema, options, function, framing
    [watermark]  column, delay
    [kappa]      start, switch, caught_up_within
    [lambda]     batch_every, trigger_ms

``query`` is ``pages.sql`` or ``queries.py:pages``. Files are searched beside the view's file. Each problem is added to
the ``TomlFile`` with its line. A field with a problem gets its default or stays empty, so that the rest of the file can
still be checked.
"""

from __future__ import annotations

import ast
import json
import re
from datetime import datetime
from pathlib import Path

from headrace.pipeline.project.definition import (
    ARCHITECTURES,
    FORMATS,
    FRAMINGS,
    SWITCHES,
    Decode,
    KappaSettings,
    LambdaSettings,
    Source,
    ViewDefinition,
    Watermark,
    duration_ms,
)
from headrace.pipeline.project.toml_files import Problem, Section, TomlFile, did_you_mean
from headrace.pipeline.serving.errors import ServingError
from headrace.pipeline.serving.sql_views import check_view_name

_FUNCTION = re.compile(r"(?P<file>.+\.py):(?P<function>[A-Za-z_]\w*)")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


class ViewFile:
    """Makes a definition from the content of one view's file."""

    def __init__(self, folder: Path, file: TomlFile) -> None:
        self._folder, self._file = folder, file
        self._top = file.section()

    def definition(self) -> ViewDefinition:
        self._check_name()
        top = self._top
        topics, pattern = self._topics()
        made = ViewDefinition(
            name=self._file.path.stem,
            topics=topics,
            pattern=pattern,
            architecture=self._required(top, "architecture", ARCHITECTURES),
            query=self._query(),
            decode=self._decode(),
            key=top.texts("key"),
            dead_letters=top.text("dead_letters"),
            watermark=self._watermark(),
            kappa=self._kappa(),
            lambda_=self._lambda(),
            file=self._relative(self._file.path),
            lines=self._file.lines,
        )
        top.finish("decode", "watermark", "kappa", "lambda")
        self._check_combinations(made)
        return made

    def _relative(self, path: Path) -> Path:
        return path.relative_to(self._folder) if path.is_relative_to(self._folder) else path

    def _check_name(self) -> None:
        try:
            check_view_name(self._file.path.stem)
        except ServingError as error:
            self._file.report(str(error))

    def _required(self, section: Section, name: str, choices: tuple[str, ...] = ()) -> str:
        known = len(self._file.problems)
        value = section.text(name, "", choices)
        if not value and len(self._file.problems) == known:
            offer = f": {' or '.join(choices)}" if choices else ""
            section.report(name, f"{name} is missing{offer}")
        return value

    def _topics(self) -> tuple[tuple[str, ...], str]:
        topics, pattern = self._top.texts("topics"), self._top.text("pattern")
        if bool(topics) == bool(pattern):
            either = 'set topics = ["clicks"] or pattern = "clicks-.*"'
            self._top.report("pattern", f"{either}{', not both' if topics else ''}")
        for topic in topics:
            if not _TOPIC.fullmatch(topic):
                self._top.report(
                    "topics", f"{topic!r} is not the name of a topic: use letters, digits, '.', '_' and '-'"
                )
        try:
            re.compile(pattern)
        except re.error as error:
            self._top.report("pattern", f"pattern is not a regular expression: {error}")
            pattern = ""
        return tuple(topic for topic in topics if _TOPIC.fullmatch(topic)), pattern

    def _query(self) -> Source:
        query = self._required(self._top, "query")
        if query and not query.endswith(".sql") and not _FUNCTION.fullmatch(query):
            self._top.report("query", f"query must be 'FILE.sql' or 'FILE.py:FUNCTION', not {query!r}")
            return Source("", "")
        return self._source(self._top, "query", query)

    def _source(self, section: Section, name: str, value: str) -> Source:
        """Reads the file that a field names."""
        if not value:
            return Source("", "")
        python = _FUNCTION.fullmatch(value)
        path = self._file.path.parent / (python["file"] if python else value)
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            section.report(name, f"{name}: cannot read {self._relative(path)}: {error.strerror}")
            text = ""
        except UnicodeDecodeError:
            section.report(name, f"{name}: {self._relative(path)} is not UTF-8")
            text = ""
        if python and text:
            self._check_function(section, name, path, text, python["function"])
        return Source(str(self._relative(path)), text, python["function"] if python else "")

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
            section.report(name, f"{self._relative(path)} has no function {function!r}{hint}")

    def _decode(self) -> Decode:
        section = self._file.section("decode")
        format_ = section.text("format", "json", FORMATS)
        known = len(self._file.problems)
        schema = section.text("schema")
        has_problem = len(self._file.problems) > known
        function, source = section.text("function"), None
        if format_ == "raw" and schema:
            section.report("schema", "format raw has no schema: its only column is value BINARY; remove decode.schema")
        if format_ != "raw" and not schema and not has_problem:
            section.report(
                "schema", f'decode.schema is missing: format {format_} needs one, such as "user STRING, ms BIGINT"'
            )
        if format_ == "avro" and schema:
            schema = self._avro_schema(section, schema)
        if bool(function) != (format_ == "python"):
            section.report(
                "function", 'format = "python" and function = "FILE.py:FUNCTION" need each other: set both or none'
            )
        elif function and not _FUNCTION.fullmatch(function):
            section.report("function", f"decode.function must be 'FILE.py:FUNCTION', not {function!r}")
        elif function:
            source = self._source(section, "function", function)
        made = Decode(format_, schema, section.mapping("options"), source, section.text("framing", "none", FRAMINGS))
        section.finish()
        return made

    def _avro_schema(self, section: Section, schema: str) -> str:
        """The schema itself, or the content of the file that it names."""
        text = schema if schema.lstrip().startswith("{") else self._source(section, "schema", schema).text
        try:
            if text and json.loads(text).get("type") != "record":
                section.report("schema", "decode.schema must be an Avro record")
        except (ValueError, AttributeError) as error:
            section.report("schema", f"decode.schema is not an Avro schema in JSON: {error}")
        return text

    def _watermark(self) -> Watermark | None:
        section = self._file.section("watermark")
        if "watermark" not in self._file.content:
            return None
        made = Watermark(self._required(section, "column"), self._required(section, "delay"))
        self._duration(section, "delay", made.delay)
        section.finish()
        return None if "watermark" in self._file.invalid_fields else made

    def _duration(self, section: Section, name: str, text: str) -> int:
        try:
            return duration_ms(text) if text else 0
        except ValueError as error:
            section.report(name, f"{name}: {error}")
            return 0

    def _kappa(self) -> KappaSettings:
        section, standard = self._file.section("kappa"), KappaSettings()
        start = section.text("start", standard.start)
        if start != "earliest":
            try:
                datetime.fromisoformat(start)
            except ValueError:
                section.report(
                    "start", f"kappa.start must be 'earliest' or a time such as '2026-11-16T08:00:00Z', not {start!r}"
                )
        within = section.whole("caught_up_within", standard.caught_up_within)
        made = KappaSettings(start, section.text("switch", standard.switch, SWITCHES), within)
        section.finish()
        return made

    def _lambda(self) -> LambdaSettings:
        section, standard = self._file.section("lambda"), LambdaSettings()
        every = section.text("batch_every", "1 hour")
        every_ms = 0 if every == "never" else self._duration(section, "batch_every", every)
        made = LambdaSettings(every_ms, section.whole("trigger_ms", standard.trigger_ms, at_least=1))
        section.finish()
        return made

    def _check_combinations(self, made: ViewDefinition) -> None:
        other = {"lambda": "kappa", "kappa": "lambda"}.get(made.architecture, "")
        if other in self._file.content:
            self._file.report(f"[{other}] has no effect in a {made.architecture} view: remove it", other)
        if made.watermark and made.architecture == "lambda":
            self._file.report("a Lambda view never drops late events: remove [watermark]", "watermark")
        if made.dead_letters in made.topics and made.dead_letters:
            self._file.report(
                f"dead_letters cannot be {made.dead_letters!r}, because the view reads this topic", "dead_letters"
            )
