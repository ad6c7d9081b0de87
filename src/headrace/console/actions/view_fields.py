"""Holds the fields that the actions on views share, and how the actions reach the project."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from headrace.console.actions.action import Preview
from headrace.console.fields import Field
from headrace.console.rendering import link
from headrace.console.request import ConsoleRequest
from headrace.console.views.model import VIEW_PATH

if TYPE_CHECKING:
    from headrace.console.views.opened import Opened
    from headrace.pipeline.management.changing import Switched

T = TypeVar("T")
#: The view that the page is about.
VIEW = Field("view", is_required=True, longest=200, is_fixed=True)


async def change(request: ConsoleRequest, work: Callable[[Opened], T]) -> T:
    """Does work in the project; the next page sees what it has changed."""
    found = await request.services.views.ask(work)
    request.services.views.forget()
    return found


def page_of(request: ConsoleRequest) -> str:
    return link(VIEW_PATH, view=request.text("view"))


def preview_of(switched: Switched) -> Preview:
    """Tells which views get another version."""
    sentences = ["Readers get the other version in one transaction: each query sees all of it, or nothing."]
    sentences += [f"{name} keeps the earlier answer: no version of {name} fits." for name in switched.left_behind]
    if not switched.moves:
        sentences = ["The version serves already, so nothing changes."]
    rows = tuple(
        (move.view, "none" if move.before is None else f"v{move.before}", f"v{move.version}") for move in switched.moves
    )
    return Preview(tuple(sentences), ("view", "serves now", "then"), rows)


def sentence_of(switched: Switched) -> str:
    moved = ", ".join(move.text for move in switched.moves)
    return f"{moved} from now on." if moved else "The version served already."
