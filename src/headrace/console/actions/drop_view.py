"""The action that drops a view, or one of its versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.console.actions.action import Action, Done, Preview
from headrace.console.actions.view_fields import VIEW, change, page_of
from headrace.console.fields import Field, Value
from headrace.console.request import ConsoleRequest

if TYPE_CHECKING:
    from headrace.console.views.opened import Opened


async def preview(request: ConsoleRequest) -> Preview:
    view, version = request.text("view"), request.number_or_none("version")

    def work(opened: Opened) -> bool:
        from headrace.pipeline.management.changing import check_unread
        from headrace.pipeline.management.opened import is_running

        catalog = opened.here.catalog
        catalog.view(view)
        if version is None:
            check_unread(view, {each.name: each for each in catalog.views()}, catalog.versions())
        else:
            catalog.version(view, version)
        return is_running(opened.here.project)

    runs = await request.services.views.ask(work)
    what = f"{view} with all its versions" if version is None else f"{view} v{version}"
    then = "at once" if runs else "when it starts: it is not running now"
    lost = ("Readers lose the view at once.",) if version is None else ()
    return Preview((*lost, f"'headrace views run' drops the rows of {what} {then}."))


async def run(request: ConsoleRequest) -> Done:
    """Drops a view that no other view reads. With a number, only this version, which must not serve."""
    view, version = request.text("view"), request.number_or_none("version")

    def work(opened: Opened) -> None:
        from headrace.pipeline.management.changing import drop_version, drop_view

        opened.here.catalog.view(view)
        if version is None:
            drop_view(opened.here, view)
        else:
            drop_version(opened.here, view, version)

    await change(request, work)
    if version is None:
        return Done(f"{view} will be dropped by 'headrace views run'.", "/views")
    return Done(f"{view} v{version} will be dropped by 'headrace views run'.", page_of(request))


def command_line(values: Mapping[str, Value]) -> list[str]:
    version = [] if values.get("version") is None else [str(values["version"])]
    return ["headrace", "views", "drop", str(values["view"]), *version]


ACTION = Action(
    "drop-view",
    "Drop a view",
    "Drop it",
    (
        VIEW,
        Field(
            "version",
            kind="number",
            default=None,
            least=1,
            most=2**31 - 1,
            help="empty: the view with all its versions",
        ),
    ),
    run,
    command_line,
    preview,
    typed="view",
    section="/views",
    is_of_project=True,
)
