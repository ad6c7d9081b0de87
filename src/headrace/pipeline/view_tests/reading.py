"""Reads the tests of a file, and finds their mistakes without Spark.

::

    view = "revenue"                    # without it: the name of the file

    [[test]]
    name = "a refund lowers the revenue"
    architectures = ["kappa"]           # without it: both, where the view allows it
    ordered = true                      # without it, the order of the rows does not count

    [[test.step]]
    records.orders = [{ order_id = 1, customer_id = 7, amount = 30 }]
    rows = [{ country = "DE", total = 30 }]
    dead_letters = 0

A test with one step may have the fields of the step itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headrace.pipeline.project.definition import ARCHITECTURES, ViewDefinition
from headrace.pipeline.project.source_definition import EVENTS, SourceDefinition
from headrace.pipeline.project.toml_files import did_you_mean
from headrace.pipeline.view_tests.answer_columns import answer_columns
from headrace.pipeline.view_tests.cases import Record, Run, Step, ViewTest
from headrace.pipeline.view_tests.documents import Document
from headrace.pipeline.view_tests.places import Path as Place
from headrace.pipeline.view_tests.record_tables import RecordReader, plain

_FILE_FIELDS = ("view", "test")
_STEP_FIELDS = ("name", "records", "rows", "dead_letters")
_TEST_FIELDS = ("name", "view", "architectures", "ordered", "step")
#: More records than this take longer to write than a test should.
MAX_RECORDS = 100_000


def read_tests(document: Document, views: Mapping[str, ViewDefinition]) -> list[Run]:
    """The tests of a file whose view is known. Mistakes are added to the document."""
    return [] if document.problems else list(_Reader(document, views).tests())


class _Reader:
    def __init__(self, document: Document, views: Mapping[str, ViewDefinition]) -> None:
        self._document, self._views = document, views
        self._names: set[tuple[str, str]] = set()

    def tests(self) -> Iterator[Run]:
        content = self._document.content
        self._check_names(content, _FILE_FIELDS, ())
        default = self._text(content, "view", self._document.path.stem, ())
        tests = content.get("test", [])
        if not isinstance(tests, list) or not tests:
            self._document.report("the file has no tests: begin one with [[test]]", ("test",))
            return
        for index, table in enumerate(tests):
            place: Place = ("test", index)
            if not isinstance(table, Mapping):
                self._document.report("a test must be a table: begin it with [[test]]", place)
                continue
            run = self._test(table, default, place)
            if run is not None:
                yield run

    def _test(self, table: Mapping[str, Any], default_view: str, place: Place) -> Run | None:
        view = self._text(table, "view", default_view, place)
        definition = self._views.get(view)
        name = self._text(table, "name", f"test {int(place[-1]) + 1}", place)
        if definition is None:
            at = (*place, "view") if "view" in table else ("view",)
            hint = did_you_mean(view, self._views) or "; write views/NAME.toml"
            named = "" if "view" in table or "view" in self._document.content else " (the name of this file)"
            self._document.report(f"there is no view {view}{named}{hint}", at)
            return None
        if (view, name) in self._names:
            self._document.report(f"two tests of {view} are named {name!r}: rename one", (*place, "name"))
        self._names.add((view, name))
        steps = tuple(self._steps(table, definition, place))
        is_ordered = table.get("ordered", False)
        if not isinstance(is_ordered, bool):
            self._document.report("ordered must be true or false", (*place, "ordered"))
        line = self._document.places.line(place)
        architectures = self._architectures(table, place)
        test = ViewTest(self._document.path, name, view, steps, architectures, is_ordered is True, line)
        return Run(test, definition)

    def _architectures(self, table: Mapping[str, Any], place: Place) -> tuple[str, ...]:
        given = table.get("architectures", [])
        given = [given] if isinstance(given, str) else given
        if not isinstance(given, list) or any(each not in ARCHITECTURES for each in given):
            self._document.report('architectures must be a list of "lambda" and "kappa"', (*place, "architectures"))
            return ()
        return tuple(dict.fromkeys(given))

    def _steps(self, table: Mapping[str, Any], definition: ViewDefinition, place: Place) -> Iterator[Step]:
        reader = RecordReader(self._document)
        if "step" not in table:
            self._check_names(table, (*_TEST_FIELDS, *_STEP_FIELDS), place)
            yield self._step(table, "", definition, reader, place)
            return
        self._check_names(table, _TEST_FIELDS, place)
        steps = table["step"]
        if not isinstance(steps, list) or not steps or not all(isinstance(each, Mapping) for each in steps):
            self._document.report("step must be tables: begin each of them with [[test.step]]", (*place, "step"))
            return
        for index, each in enumerate(steps):
            at = (*place, "step", index)
            self._check_names(each, _STEP_FIELDS, at)
            yield self._step(each, self._text(each, "name", "", at), definition, reader, at)

    def _step(
        self, table: Mapping[str, Any], name: str, definition: ViewDefinition, reader: RecordReader, place: Place
    ) -> Step:
        records = tuple(self._records(table.get("records", {}), definition, reader, (*place, "records")))
        if len(records) > MAX_RECORDS:
            self._document.report(f"a step has at most {MAX_RECORDS:,} records", (*place, "records"))
        rows = self._rows(table["rows"], definition, (*place, "rows")) if "rows" in table else None
        dead = table.get("dead_letters")
        if dead is not None and (isinstance(dead, bool) or not isinstance(dead, int) or dead < 0):
            self._document.report("dead_letters must be a whole number of at least 0", (*place, "dead_letters"))
            dead = None
        return Step(name, records, rows, dead, place, self._document.places.line(place))

    def _records(self, given: Any, definition: ViewDefinition, reader: RecordReader, place: Place) -> Iterator[Record]:
        if not isinstance(given, Mapping):
            self._document.report("records must name sources: records.orders = [{ ... }]", place)
            return
        known = _sources(definition)
        for name, tables in given.items():
            at = (*place, name)
            if name.lower() not in known:
                hint = did_you_mean(name, [source.name or topic for source, topic in known.values()])
                self._document.report(f"the view {definition.name} has no source {name}{hint}", at)
                continue
            source, topic = known[name.lower()]
            yield from reader.records(source, topic, tables, at)

    def _rows(self, given: Any, definition: ViewDefinition, place: Place) -> tuple[Mapping[str, Any], ...]:
        if not isinstance(given, list) or not all(isinstance(each, Mapping) for each in given):
            self._document.report('rows must be a list of tables, such as [{ country = "DE", total = 5 }]', place)
            return ()
        known = answer_columns(definition)
        for index, row in enumerate(given):
            for name in row:
                if known is not None and str(name).lower() not in known:
                    hint = did_you_mean(str(name), list(dict.fromkeys(known.values())))
                    message = f"the view {definition.name} has no column {name}{hint}"
                    self._document.report(message, (*place, index, name))
        return tuple({str(name): plain(value) for name, value in row.items()} for row in given)

    def _text(self, table: Mapping[str, Any], name: str, default: str, place: Place) -> str:
        value = table.get(name, default)
        if isinstance(value, str):
            return value
        self._document.report(f"{name} must be a text", (*place, name))
        return default

    def _check_names(self, table: Mapping[str, Any], known: tuple[str, ...], place: Place) -> None:
        for name in table:
            if name not in known:
                self._document.report(f"there is no field {name!r}{did_you_mean(str(name), known)}", (*place, name))


def _sources(definition: ViewDefinition) -> dict[str, tuple[SourceDefinition, str]]:
    """Returns the names that a test may use, in lower case: the sources and the topics that the view reads.

    A name stands for a source and, if it is the name of a topic, for this topic.
    """
    found: dict[str, tuple[SourceDefinition, str]] = {}
    for source in definition.inputs:
        if source.name == EVENTS or not definition.sources:
            found |= {topic.lower(): (source, topic) for topic in source.topics}
    return found | {source.name.lower(): (source, "") for source in definition.inputs}
