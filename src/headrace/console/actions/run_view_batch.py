"""The action that asks ``headrace views run`` for a batch of a view. Spark runs there, not in the console."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.console.actions.action import Action, Done, Preview
from headrace.console.actions.command_lines import options
from headrace.console.actions.view_fields import VIEW, change, page_of
from headrace.console.fields import Field, Value
from headrace.console.problems import ConsoleError
from headrace.console.request import ConsoleRequest

if TYPE_CHECKING:
    from headrace.console.views.opened import Opened


class NotRunning(ConsoleError):
    """Nobody would do the batch."""

    status = 409
    name = "not_running"
    advice = "Start 'headrace views run' on the project, then ask again."


def _check_running(opened: Opened) -> None:
    from headrace.pipeline.management.opened import is_running

    if not is_running(opened.here.project):
        raise NotRunning("'headrace views run' is not running on this project")


async def preview(request: ConsoleRequest) -> Preview:
    view = request.text("view")

    def work(opened: Opened) -> None:
        opened.here.catalog.view(view)
        _check_running(opened)

    await request.services.views.ask(work)
    return Preview((f"'headrace views run' computes a batch of {view} as soon as it can.",))


async def run(request: ConsoleRequest) -> Done:
    """Asks for a batch. The answer does not wait for its end."""
    view, full = request.text("view"), request.flag("full")

    def work(opened: Opened) -> None:
        opened.here.catalog.view(view)
        _check_running(opened)
        opened.here.catalog.add_request(view, "batch", {"full": full})

    await change(request, work)
    return Done(f"A batch of {view} was asked for.", page_of(request))


def command_line(values: Mapping[str, Value]) -> list[str]:
    return ["headrace", "views", "batch", str(values["view"]), *options(values, {"full": "--full"})]


ACTION = Action(
    "run-view-batch",
    "Run a batch",
    "Run the batch",
    (VIEW, Field("full", "From the start of the log", kind="flag", default=False)),
    run,
    command_line,
    preview,
    section="/views",
    is_of_project=True,
)
