"""A view of the catalog whose first version serves, for tests of readers."""

from headrace.pipeline.serving.catalog import Catalog, Progress, VersionEvent
from headrace.pipeline.serving.database import Database


def serve_view(database: Database, name: str, select: str, offsets: dict[str, dict[int, int]]) -> None:
    """Adds a view without a table.

    :param select: the SQL that readers see.
    :param offsets: by topic and partition, up to where the view counts.
    """
    catalog = Catalog(database)
    catalog.create_view(name, "kappa", "h")
    catalog.add_version(name, {}, "h")
    for event in (VersionEvent.STARTED, VersionEvent.CAUGHT_UP):
        catalog.set_state(name, 1, event)
    with database.begin() as connection:
        catalog.set_progress(connection, Progress(name, 1, 1, offsets))
        catalog.switch(connection, name, 1, select)
