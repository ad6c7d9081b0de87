"""Asks the Spark of a running ``headrace views run`` how a version is kept up to date, why, and what an event costs.

The console starts no Spark. The question is that of ``headrace views explain``, about the definition of the version.
One question runs at a time, because a runner that is busy may take seconds, and other pages need the threads.
"""

from __future__ import annotations

from headrace.console.problems import ConsoleError
from headrace.console.views.model import Plan
from headrace.console.views.opened import Opened


class NoPlan(ConsoleError):
    """No running Spark says the plan now."""

    status = 503
    name = "no_plan"
    advice = "Start 'headrace views run', or run 'headrace views explain', which starts Spark."


def read_plan(opened: Opened, view: str, version: int) -> Plan:
    """
    :raises NoPlan: if no runner answers, or another question runs.
    """
    from headrace.pipeline.common_cut.eligibility import why_outside
    from headrace.pipeline.maintenance.explanation import lines_of
    from headrace.pipeline.project.definition import ViewDefinition
    from headrace.pipeline.shared_spark.client import has_runner
    from headrace.pipeline.shared_spark.requests import explain_in_runner

    project = opened.here.project
    if not has_runner(project.folder):
        raise NoPlan("'headrace views run' is not running, so there is no Spark to ask")
    if not opened.plan_lock.acquire(blocking=False):
        raise NoPlan("the running Spark is being asked for another plan")
    try:
        definition = ViewDefinition.from_dict(opened.here.catalog.version(view, version).definition)
        found = explain_in_runner(project.folder, definition)
    finally:
        opened.plan_lock.release()
    if found is None:
        raise NoPlan("the runner is busy, or is another version of Headrace")
    if found.explanation is None:
        return Plan(version, tuple(problem.message for problem in found.problems), "")
    way = found.explanation["way"]
    own = why_outside(way, definition.trigger_ms, same_offsets=project.same_offsets)
    return Plan(version, tuple(lines_of(found.explanation | {"own_offsets": own})), "")
