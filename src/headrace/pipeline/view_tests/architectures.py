"""Decides which architectures a test can use: the view's own, and the other one if it means the same answer."""

from __future__ import annotations

from dataclasses import replace

from headrace.pipeline.maintenance.ways import WAYS_OF
from headrace.pipeline.project.definition import ARCHITECTURES, ViewDefinition


def definitions_of(definition: ViewDefinition, wanted: tuple[str, ...]) -> dict[str, ViewDefinition | str]:
    """By architecture, the definition to test, or why the architecture is skipped. The view's own comes first.

    :param wanted: the architectures that the test names; empty for all.
    """
    own = definition.architecture
    found: dict[str, ViewDefinition | str] = {}
    for architecture in sorted(ARCHITECTURES, key=lambda each: each != own):
        if wanted and architecture not in wanted:
            found[architecture] = "the test does not ask for it"
        elif architecture == own:
            found[architecture] = definition
        else:
            found[architecture] = _why_not(definition, architecture) or replace(definition, architecture=architecture)
    return found


def _why_not(definition: ViewDefinition, other: str) -> str:
    if definition.maintain and definition.maintain not in WAYS_OF[other]:
        return f'maintain = "{definition.maintain}" is not a way of a {other} view'
    if definition.watermark or any(source.watermark for source in definition.sources):
        return "a watermark drops late events in a kappa view only, so the answers differ"
    if other == "lambda" and definition.kappa.start != "earliest":
        return "kappa.start leaves out records, which a lambda view does not"
    return ""


def has_batch_answer(definition: ViewDefinition) -> str:
    """Why the query over all records is not the answer of the view; empty if it is."""
    if definition.keep is not None:
        return "[keep] deletes old rows"
    if definition.watermark or any(source.watermark for source in definition.sources):
        return "the watermark drops late events"
    return "kappa.start leaves out records" if definition.kappa.start != "earliest" else ""
