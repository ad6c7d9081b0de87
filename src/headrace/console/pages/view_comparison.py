"""The page that compares two versions of a view: their queries, and their rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.console.fields import Field
from headrace.console.pages.page import Page
from headrace.console.problems import ConsoleError, NotFound
from headrace.console.request import ConsoleRequest
from headrace.console.views.model import VIEW_PATH, Table, VersionDefinition

if TYPE_CHECKING:
    from headrace.console.views.opened import Opened


@dataclass(frozen=True)
class Comparison:
    """Two versions of a view.

    :ivar texts: the differences of query, schemas and functions, as lines of a unified diff.
    :ivar rows: the rows that only one version has, with its number in the first column; None if that is not known.
    :ivar rows_problem: why the rows cannot be compared; empty if they can.
    """

    view: str
    left: int
    right: int
    versions: tuple[int, ...]
    texts: tuple[str, ...]
    rows: Table | None
    rows_problem: str


async def read(request: ConsoleRequest) -> Comparison:
    """The differences between the definitions of two versions, and between their rows, of one snapshot."""
    name, project = request.text("view"), request.services.views

    def texts(opened: Opened) -> tuple[VersionDefinition, ...]:
        from headrace.console.views.definitions import read_definitions

        return read_definitions(opened, name)

    found = {each.version: each for each in await project.ask(texts)}
    if len(found) < 2:
        raise NotFound(f"{name} has fewer than two versions, so there is nothing to compare")
    numbers = tuple(found)
    left = request.number_or_none("left") or numbers[-2]
    right = request.number_or_none("right") or numbers[-1]
    for number in (left, right):
        if number not in found:
            raise NotFound(f"{name} has no version {number}")
    from headrace.console.views.definitions import differences

    rows, problem = await _rows(request, name, left, right)
    return Comparison(name, left, right, numbers, differences(found[left], found[right]), rows, problem)


async def _rows(request: ConsoleRequest, name: str, left: int, right: int) -> tuple[Table | None, str]:
    def ask(opened: Opened) -> Table:
        from headrace.console.views.answers import answer_differences, masked

        versions = [opened.here.catalog.version(name, number) for number in (left, right)]
        return masked(answer_differences(opened, *versions), request.services.settings.masks)

    try:
        return await request.services.views.ask(ask), ""
    except ConsoleError as error:
        return None, str(error)


PAGE = Page(
    f"{VIEW_PATH}/comparison",
    "Versions of {view}",
    read,
    "view_comparison.html",
    query=(
        Field("left", "Version", kind="number", default=None, least=1, most=2**31 - 1),
        Field("right", "With version", kind="number", default=None, least=1, most=2**31 - 1),
    ),
    section="/views",
)
