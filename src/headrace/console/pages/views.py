"""The page of the project of views: the graph, and each view with its versions, freshness and lag."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.console.pages.page import Page
from headrace.console.rendering import link
from headrace.console.request import ConsoleRequest
from headrace.console.views.model import VIEW_PATH, Status

_ROWS_SECONDS = 10.0


@dataclass(frozen=True)
class Views:
    """The project of views.

    :ivar status: None if the console was started without a project.
    :ivar rows: the rows of each view that serves, counted up to 100,000.
    """

    status: Status | None
    rows: dict[str, int | None]


async def read(request: ConsoleRequest) -> Views:
    """The graph of sources and views as SVG, and the views with their versions, freshness, lag and rows."""
    project = request.services.views
    if project.folder is None:
        return Views(None, {})
    status = await status_of(request)
    serving = tuple(view.name for view in status.views if view.serving is not None)

    from headrace.console.views.answers import count_rows

    rows = await project.ask_cached(("rows", serving), lambda opened: count_rows(opened, serving), _ROWS_SECONDS)
    return Views(status, rows)


async def status_of(request: ConsoleRequest) -> Status:
    """The status of the project, as of the last second."""

    def ask(opened):  # type: ignore[no-untyped-def]
        from headrace.console.views.status import read_status

        return read_status(opened, lambda view: link(VIEW_PATH, view=view))

    return await request.services.views.ask_cached("status", ask)


PAGE = Page("/views", "Views", read, "views.html", navigation="Views", live_seconds=2)
