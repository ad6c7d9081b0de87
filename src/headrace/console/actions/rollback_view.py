"""The action that switches readers back to the version that served before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.console.actions.action import Action, Done, Preview
from headrace.console.actions.view_fields import VIEW, change, page_of, preview_of, sentence_of
from headrace.console.fields import Value
from headrace.console.request import ConsoleRequest

if TYPE_CHECKING:
    from headrace.console.views.opened import Opened
    from headrace.pipeline.management.changing import Switched


async def preview(request: ConsoleRequest) -> Preview:
    view = request.text("view")

    def work(opened: Opened) -> Switched:
        from headrace.pipeline.management.changing import foreseen, planned_rollback

        return foreseen(opened.here, planned_rollback(opened.here, view))

    return preview_of(await request.services.views.ask(work))


async def run(request: ConsoleRequest) -> Done:
    """Switches readers to the version that served before."""
    view = request.text("view")

    def work(opened: Opened) -> Switched:
        from headrace.pipeline.management.changing import planned_rollback, switch_readers

        return switch_readers(opened.here, planned_rollback(opened.here, view))

    return Done(sentence_of(await change(request, work)), page_of(request))


def command_line(values: Mapping[str, Value]) -> list[str]:
    return ["headrace", "views", "rollback", str(values["view"])]


ACTION = Action(
    "rollback-view",
    "Switch readers back",
    "Roll back",
    (VIEW,),
    run,
    command_line,
    preview,
    section="/views",
    is_of_project=True,
)
