"""Reads the file of one view, ``views/NAME.toml``, and makes a definition from it.

::

    architecture, query, key, maintain, sources
    topics or pattern, [decode], [watermark], dead_letters      as in the file of a source (``source_file``)
    [kappa]      start, switch, caught_up_within, trigger_ms, batch_every
    [lambda]     batch_every, trigger_ms
    [keep]       column, for
    [publish]    topic, format, registry
    [changes]    always, keep_changes, keep
    [export]     path, every, keep

``query`` is ``pages.sql`` or ``queries.py:pages``. Files are searched beside the view's file. A view without topics,
pattern and [decode] reads the sources and views that its query names (``resolution``).
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from pathlib import Path

from headrace.pipeline.project.decode import Decode, FileText
from headrace.pipeline.project.decode_table import DecodeTable
from headrace.pipeline.project.definition import (
    ARCHITECTURES,
    SWITCHES,
    WAYS_TO_MAINTAIN,
    KappaSettings,
    Keep,
    LambdaSettings,
    ViewDefinition,
)
from headrace.pipeline.project.export_table import read_export
from headrace.pipeline.project.field_reader import FUNCTION, FieldReader
from headrace.pipeline.project.publish_table import read_changes, read_publish
from headrace.pipeline.project.resolution import KnownSources, UnresolvedView, names_in
from headrace.pipeline.project.table_names import parameters_of, tables_of_sql
from headrace.pipeline.project.toml_files import Section, TomlFile
from headrace.pipeline.serving.errors import ServingError
from headrace.pipeline.serving.sql_views import check_view_name

_OWN_RECORDS = ("topics", "pattern", "decode")


class ViewFile:
    """Makes a definition from the content of one view's file.

    :param known: the sources of the project.
    :param views: the names of all views of the project.
    """

    def __init__(self, folder: Path, file: TomlFile, known: KnownSources, views: Collection[str] = ()) -> None:
        self._file, self._known, self._views = file, known, views
        self._fields = FieldReader(folder, file)
        self._top = self._fields.top

    def unresolved(self) -> UnresolvedView:
        """The view, before the names in its query are looked up."""
        self._check_name()
        top, fields = self._top, self._fields
        listed, query = top.texts("sources"), self._query()
        has_own = any(name in self._file.content for name in _OWN_RECORDS) or not (
            listed or self._known.by_name or self._names_a_view(query)
        )
        topics, pattern = fields.topics() if has_own else ((), "")
        made = ViewDefinition(
            name=self._file.path.stem,
            topics=topics,
            pattern=pattern,
            architecture=fields.required(top, "architecture", ARCHITECTURES),
            query=query,
            decode=DecodeTable(fields).decode() if has_own else Decode(),
            key=top.texts("key"),
            dead_letters=fields.dead_letters(topics),
            watermark=fields.watermark(),
            kappa=self._kappa(),
            lambda_=self._lambda(),
            maintain=top.text("maintain", "", WAYS_TO_MAINTAIN),
            keep=self._keep(),
            publish=read_publish(self._fields),
            changes=read_changes(self._fields),
            export=read_export(self._fields),
            file=fields.relative(self._file.path),
            lines=self._file.lines,
        )
        top.finish("decode", "watermark", "kappa", "lambda", "keep", "publish", "changes", "export", *_OWN_RECORDS)
        self._check_combinations(made)
        names = names_in(made, self._file, listed, has_own=has_own)
        return UnresolvedView(made, self._file, listed, has_own, names)

    def _names_a_view(self, query: FileText) -> bool:
        """Whether the query names another view. Such a view needs no topics, also if the project has no sources."""
        if not query.text:
            return False
        names = (parameters_of(query) or ()) if query.is_python else tables_of_sql(query.text)
        others = set(self._views) - {self._file.path.stem}
        return any(each.name.lower() in others for each in names)

    def _check_name(self) -> None:
        try:
            check_view_name(self._file.path.stem)
        except ServingError as error:
            self._file.report(str(error))

    def _query(self) -> FileText:
        query = self._fields.required(self._top, "query")
        if query and not query.endswith(".sql") and not FUNCTION.fullmatch(query):
            self._top.report("query", f"query must be 'FILE.sql' or 'FILE.py:FUNCTION', not {query!r}")
            return FileText("", "")
        return self._fields.text(self._top, "query", query)

    def _keep(self) -> Keep | None:
        section = self._file.section("keep")
        if "keep" not in self._file.content:
            return None
        made = Keep(self._fields.required(section, "column"), self._fields.required(section, "for"))
        self._fields.duration(section, "for", made.duration)
        section.finish()
        return None if "keep" in self._file.invalid_fields else made

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
        trigger_ms = section.whole("trigger_ms", standard.trigger_ms, at_least=1)
        switch, every_ms = section.text("switch", standard.switch, SWITCHES), self._batch_every_ms(section)
        made = KappaSettings(start, switch, within, trigger_ms, every_ms)
        section.finish()
        return made

    def _lambda(self) -> LambdaSettings:
        section, standard = self._file.section("lambda"), LambdaSettings()
        every_ms = self._batch_every_ms(section)
        made = LambdaSettings(every_ms, section.whole("trigger_ms", standard.trigger_ms, at_least=1))
        section.finish()
        return made

    def _batch_every_ms(self, section: Section) -> int:
        every = section.text("batch_every", "1 hour")
        return 0 if every == "never" else self._fields.duration(section, "batch_every", every)

    def _check_combinations(self, made: ViewDefinition) -> None:
        other = {"lambda": "kappa", "kappa": "lambda"}.get(made.architecture, "")
        if other in self._file.content:
            self._file.report(f"[{other}] has no effect in a {made.architecture} view: remove it", other)
        if made.watermark and made.architecture == "lambda":
            self._file.report("a Lambda view never drops late events: remove [watermark]", "watermark")
