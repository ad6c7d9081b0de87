"""The action that switches readers to another version of a view, and of the views that must fit it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.console.actions.action import Action, Done, Preview
from headrace.console.actions.view_fields import VIEW, change, page_of, preview_of, sentence_of
from headrace.console.fields import Field, Value
from headrace.console.request import ConsoleRequest

if TYPE_CHECKING:
    from headrace.console.views.opened import Opened
    from headrace.pipeline.management.changing import Switched


async def preview(request: ConsoleRequest) -> Preview:
    view, version = request.text("view"), request.number_or_none("version")

    def work(opened: Opened) -> Switched:
        from headrace.pipeline.management.changing import Switched, foreseen, planned_switch

        planned = planned_switch(opened.here, view, version)
        return Switched((), ()) if planned.serves_already else foreseen(opened.here, planned)

    return preview_of(await request.services.views.ask(work))


async def run(request: ConsoleRequest) -> Done:
    """Switches readers to a version that has caught up. Without a number, to the newest one."""
    view, version = request.text("view"), request.number_or_none("version")

    def work(opened: Opened) -> Switched:
        from headrace.pipeline.management.changing import Switched, planned_switch, switch_readers

        planned = planned_switch(opened.here, view, version)
        return Switched((), ()) if planned.serves_already else switch_readers(opened.here, planned)

    return Done(sentence_of(await change(request, work)), page_of(request))


def command_line(values: Mapping[str, Value]) -> list[str]:
    version = [] if values.get("version") is None else [str(values["version"])]
    return ["headrace", "views", "switch", str(values["view"]), *version]


ACTION = Action(
    "switch-view",
    "Switch readers to another version",
    "Switch the readers",
    (
        VIEW,
        Field(
            "version",
            kind="number",
            default=None,
            least=1,
            most=2**31 - 1,
            help="empty: the newest version that has caught up",
        ),
    ),
    run,
    command_line,
    preview,
    section="/views",
    is_of_project=True,
)
