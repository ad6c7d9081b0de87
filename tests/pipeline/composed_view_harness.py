"""A view on views over a log that is written record by record, made from the files of a project.

What the view must show is the batch answer of one query in which the upstream views are common table expressions: so
the test does not rely on the code that puts the queries of views together.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from pathlib import Path

from kept_view_harness import KeptView
from query_grammar import KINDS, SCHEMAS, Query, Record

from headrace.pipeline.project.decode import FileText
from headrace.pipeline.project.definition import LambdaSettings, ViewDefinition
from headrace.pipeline.project.loading import read_project
from headrace.pipeline.project.source_definition import SourceDefinition

_BEGIN_MS = 1_767_225_600_000


@dataclass(frozen=True)
class Composed:
    """
    :param views: the upstream views, by name, each after those that it reads; SQL, or Python that begins with ``def``.
    :param sql: the query of the view itself.
    :param inlined: the whole query as SQL, if a view is in Python.
    """

    name: str
    views: dict[str, str]
    sql: str
    tables: frozenset[str]
    inlined: str = ""

    @property
    def one_query(self) -> str:
        views = ", ".join(f"{name} AS ({sql})" for name, sql in self.views.items())
        return self.inlined or f"WITH {views} {self.sql}"


class ComposedView(KeptView):
    def __init__(self, spark, bootstrap, database, folder: Path, composed: Composed, architecture: str, kind: str):
        self._composed, self._folder = composed, folder
        super().__init__(
            spark, bootstrap, database, folder, Query(composed.sql, composed.tables, composed.name), architecture, kind
        )

    def _definition(self, query: Query, architecture: str) -> ViewDefinition:
        sources = [self._source(name) for name in SCHEMAS]
        return composed_definition(
            self._folder / f"{self._prefix}-files", self._composed, sources, self._prefix, architecture
        )

    @property
    def has_begun(self) -> bool:
        with self._context.database.read() as connection:
            return self._context.catalog.progress(connection, *self.version.key) is not None

    def _expected(self, offsets):
        composed = self.definition
        self.definition = by_hand(composed, self._composed)
        try:
            return super()._expected(offsets)
        finally:
            self.definition = composed


def composed_definition(
    folder: Path, composed: Composed, sources: list[SourceDefinition], name: str, architecture: str
) -> ViewDefinition:
    """The definition that the files of a project give."""
    for each in ("views", "sources"):
        (folder / each).mkdir(parents=True)
    (folder / "headrace.toml").write_text("")
    for source in sources:
        text = (
            f"kind = {json.dumps(source.kind)}\ntopics = {json.dumps(list(source.topics))}\n"
            f"dead_letters = {json.dumps(source.dead_letters)}\n[decode]\nschema = {json.dumps(source.decode.schema)}\n"
        )
        (folder / "sources" / f"{source.name}.toml").write_text(text)
    for view, query in {**composed.views, name: composed.sql}.items():
        text, is_python = query.replace("{name}", view), query.startswith("def")
        file = f"{view}.py" if is_python else f"{view}.sql"
        (folder / "views" / file).write_text(text)
        named = f"{file}:{view}" if is_python else file
        (folder / "views" / f"{view}.toml").write_text(f'architecture = "{architecture}"\nquery = "{named}"\n')
    draft = read_project(folder)
    assert not draft.problems, draft.problems
    return replace(draft.project.views[name], lambda_=LambdaSettings(0, 1))


def by_hand(definition: ViewDefinition, composed: Composed) -> ViewDefinition:
    """The same view with one query over its sources."""
    query = FileText("views/by_hand.sql", composed.one_query)
    return replace(definition, query=query, views=(), reads_directly=())


def random_records(seed: int, tables: frozenset[str], count: int) -> list[Record]:
    """Records with few values, so that keys meet and repeat; some do not decode, some remove a row."""
    r = random.Random(seed)

    def few() -> int | None:
        return r.choice((None, 1, 1, 2, 3, 4))

    def one() -> Record:
        source, partition, at = r.choice(sorted(tables)), r.randrange(2), _BEGIN_MS + 60_000 * r.randrange(180)
        when = f"2026-01-01T0{r.randrange(3)}:{r.randrange(60):02}:00Z"
        value = {
            "orders": {"id": few(), "customer": few(), "amount": few(), "at": r.choice((None, when, when)),
                       "note": r.choice(("a", "b", None)), "tags": ["x"]},
            "payments": {"order_id": few(), "paid": few(), "at": when},
            "customers": {"country": r.choice(("de", "fr", None)), "tier": few()},
        }[source]  # fmt: skip
        if r.random() < 0.1:
            return Record(source, partition, 1 if KINDS[source] == "table" else None, "{", at)
        if KINDS[source] != "table":
            return Record(source, partition, None, value, at)
        return Record(source, partition, r.randrange(1, 5), None if r.random() < 0.2 else value, at)

    return [one() for _ in range(count)]
