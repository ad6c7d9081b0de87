"""The page of a view: its versions side by side, its query, its dead letters, and how it is published."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.console.history.series import Series
from headrace.console.pages.page import Page
from headrace.console.pages.span import SPAN
from headrace.console.pages.views import status_of
from headrace.console.problems import ConsoleError, NotFound
from headrace.console.request import ConsoleRequest
from headrace.console.views.model import VIEW_PATH, LogRecord, Plan, VersionDefinition, ViewRow
from headrace.console.views.project import ViewsProblem

if TYPE_CHECKING:
    from headrace.console.views.opened import Opened

_DEAD_LETTERS_SECONDS = 10.0
_DEAD_LETTERS = 10
_PLAN_SECONDS = 600.0
#: The page does not wait longer for Spark: it shows the plan with its next update.
_PLAN_WAIT_SECONDS = 1.0
_MOST_PLANS = 4
_VERSIONS_WITH_LINES = 4


@dataclass(frozen=True)
class ViewPage:
    """A view with its versions and their definitions, by the number of the version.

    :ivar plans: how the newest versions are kept up to date, why, and at what cost.
    :ivar notes: how publishing and exporting go.
    :ivar dead_letters: the newest records of the dead-letter topics, which say why they are there.
    :ivar dead_letters_problem: why the dead letters cannot be shown; empty if they can.
    :ivar lines: the age and the lag of the newest versions over time.
    """

    view: ViewRow
    is_running: bool
    definitions: tuple[VersionDefinition, ...]
    plans: tuple[Plan, ...]
    notes: tuple[str, ...]
    dead_letters: tuple[LogRecord, ...]
    dead_letters_problem: str
    lines: tuple[Series, ...]


async def read(request: ConsoleRequest) -> ViewPage:
    """The versions of a view with progress, cost and definitions, and the newest dead letters with their reasons."""
    name, project = request.text("view"), request.services.views

    def ask(opened: Opened) -> tuple[VersionDefinition, ...]:
        from headrace.console.views.definitions import read_definitions

        return read_definitions(opened, name)

    definitions = await project.ask_cached(("definitions", name), ask)
    status = await status_of(request)
    view = next((each for each in status.views if each.name == name), None)
    if view is None:
        raise NotFound(f"there is no view {name!r}")
    topics = tuple(sorted({topic for each in definitions for topic in each.dead_letter_topics}))
    letters, problem = await _dead_letters(request, topics)
    notes = tuple(note for note in status.notes if note.startswith(f"{name}: "))
    versions = sorted((each.version for each in definitions), reverse=True)[:_MOST_PLANS]
    plans = tuple([await _plan(request, name, version) for version in versions])
    newest = [each.version for each in view.versions][-_VERSIONS_WITH_LINES:]
    lines = await request.services.history.view_lines(name, newest, request.text("span"))
    return ViewPage(view, status.is_running, definitions, plans, notes, letters, problem, lines)


async def _plan(request: ConsoleRequest, view: str, version: int) -> Plan:
    """The plan of a version. It is asked for once, also if nobody waits for it any longer."""

    def ask(opened: Opened) -> Plan:
        from headrace.console.views.plans import read_plan

        return read_plan(opened, view, version)

    asked = request.services.views.ask_cached(("plan", view, version), ask, _PLAN_SECONDS)
    try:
        async with asyncio.timeout(_PLAN_WAIT_SECONDS):
            return await asked
    except TimeoutError:
        return Plan(version, (), "the running Spark is being asked")
    except ConsoleError as error:
        return Plan(version, (), str(error))


async def _dead_letters(request: ConsoleRequest, topics: tuple[str, ...]) -> tuple[tuple[LogRecord, ...], str]:
    if not topics:
        return (), ""

    def ask(opened: Opened) -> tuple[LogRecord, ...]:
        from headrace.console.views.log_records import newest_of_topic

        return newest_of_topic(opened.here.project, topics, _DEAD_LETTERS, request.services.settings.masks)

    try:
        key = ("dead letters", topics)
        return (await request.services.views.ask_cached(key, ask, _DEAD_LETTERS_SECONDS))[:_DEAD_LETTERS], ""
    except (TimeoutError, ViewsProblem) as error:
        return (), str(error) or "timeout"


PAGE = Page(VIEW_PATH, "View {view}", read, "view.html", query=(SPAN,), section="/views", live_seconds=2)
