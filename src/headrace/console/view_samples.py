"""Reads the age and the lag of the versions of a project as measures of a sample."""

from __future__ import annotations

from logging import getLogger
from typing import TYPE_CHECKING

from headrace.console.history.sample import measure_of_version
from headrace.console.problems import ConsoleError
from headrace.console.views.project import ViewsProject

if TYPE_CHECKING:
    from headrace.console.views.opened import Opened

logger = getLogger(__name__)


async def view_measures(views: ViewsProject) -> dict[str, float | None]:
    """The measures of the views; none if the project does not answer."""

    def ask(opened: Opened) -> list[tuple[str, int, int | None, int | None]]:
        from headrace.console.views.sampling import sample_versions

        return sample_versions(opened)

    found: dict[str, float | None] = {}
    try:
        for view, version, age_ms, behind in await views.ask(ask):
            found[measure_of_version(view, version, "age")] = age_ms
            found[measure_of_version(view, version, "behind")] = behind
    except ConsoleError as error:
        logger.debug("the views are not sampled: %s", error)
    return found
