"""A project of views whose catalog and tables the test fills, without Spark and without ``headrace views run``."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from headrace.pipeline.project.decode import Decode, FileText
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.serving.catalog import Catalog, Progress, VersionEvent
from headrace.pipeline.serving.database import Database
from headrace.pipeline.serving.tables import create_table, data_table, select_all

SCHEMA = pa.schema([("page", pa.string()), ("clicks", pa.int64())])
HOSTILE = "<script>alert(1)</script>"


class ViewsProject:
    """The project in a folder. Close it before the folder goes away."""

    def __init__(self, folder: Path, bootstrap: str = "127.0.0.1:1") -> None:
        self.folder = folder
        (folder / "headrace.toml").write_text(f'[log]\nbootstrap = "{bootstrap}"\n')
        (folder / "views").mkdir()
        self.database = Database(f"sqlite:///{folder / 'headrace-views.db'}")
        self.catalog = Catalog(self.database)

    def close(self) -> None:
        self.database.close()

    def add(self, rows: dict[str, int], *, query: str, view: str = "pages", topic: str = "clicks", end: int = 0) -> int:
        """Adds a version that has caught up, with rows."""
        decode = Decode(schema="page STRING")
        text = FileText(f"{view}.sql", query)
        definition = ViewDefinition(view, (topic,), "", "kappa", text, decode, key=("page",), dead_letters="dead")
        self.catalog.create_view(view, "kappa", definition.definition_hash)
        stored = definition.as_dict() | {"way": "combine"}
        version = self.catalog.add_version(view, stored, definition.definition_hash)
        for event in (VersionEvent.STARTED, VersionEvent.CAUGHT_UP):
            self.catalog.set_state(view, version.version, event)
        table = data_table(version.table_name, SCHEMA, ["page"])
        with self.database.begin() as connection:
            create_table(connection, table)
            made = pa.table([list(rows), list(rows.values())], schema=SCHEMA)
            self.database.upsert(connection, table, made, batch_id=1)
            progress = Progress(view, version.version, 1, {topic: {0: end}}, events=len(rows), dead_letters=3)
            self.catalog.set_progress(connection, progress)
            self.catalog.set_select(connection, view, version.version, select_all(table))
        return version.version

    def serve(self, version: int, view: str = "pages") -> None:
        with self.database.begin() as connection:
            select = self.catalog.version(view, version, connection).select_sql
            assert select is not None
            self.catalog.switch(connection, view, version, select)

    def serving(self, view: str = "pages") -> int | None:
        return self.catalog.view(view).serving_version


def pages_project(folder: Path, bootstrap: str = "127.0.0.1:1") -> ViewsProject:
    """The view ``pages``: version 1 serves, version 2 has caught up. One of its rows looks like HTML."""
    project = ViewsProject(folder, bootstrap)
    query = f"SELECT page, count(*) AS clicks -- {HOSTILE}\nFROM events GROUP BY page"
    project.serve(project.add({"home": 3, "about": 1, HOSTILE: 2}, query=query, end=5))
    project.add({"home": 7, "new": 1, HOSTILE: 2}, query=query.replace("count(*)", "sum(2)"), end=5)
    return project
