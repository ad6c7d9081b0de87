"""Reads the definitions of the versions of a view from the catalog, and compares their texts."""

from __future__ import annotations

from difflib import unified_diff

from headrace.console.views.model import TextFile, VersionDefinition
from headrace.console.views.opened import Opened
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.serving.catalog import Version

_MOST_CHARACTERS = 100_000
_MOST_LINES = 2_000


def read_definitions(opened: Opened, view: str) -> tuple[VersionDefinition, ...]:
    """
    :raises UnknownView: if there is no such view.
    """
    opened.here.catalog.view(view)
    return tuple(_definition(each) for each in opened.here.catalog.versions(view))


def _definition(version: Version) -> VersionDefinition:
    found = ViewDefinition.from_dict(version.definition)
    texts = [TextFile(found.query.file or "query", found.query.text[:_MOST_CHARACTERS])]
    for source in found.inputs:
        texts.append(TextFile(f"schema of {source.name}", source.decode.schema[:_MOST_CHARACTERS]))
        function = source.decode.function
        if function is not None:
            texts.append(TextFile(function.file, function.text[:_MOST_CHARACTERS]))
    topics = [name for source in found.inputs for name in (*source.topics, source.pattern) if name]
    dead = {source.dead_letters for source in found.inputs} | {found.dead_letters}
    return VersionDefinition(
        version.version,
        tuple(dict.fromkeys(topics)),
        found.key,
        tuple(sorted(dead - {""})),
        tuple(text for text in texts if text.text),
        version.created_ms,
        version.served_ms,
    )


def differences(left: VersionDefinition, right: VersionDefinition) -> tuple[str, ...]:
    """The differences of the texts of two versions, as lines that begin with a blank, ``+``, ``-`` or ``@@``."""
    lines: list[str] = []
    ours, theirs = ({each.name: each.text for each in side.texts} for side in (left, right))
    for name in dict.fromkeys([*ours, *theirs]):
        before, after = ours.get(name, "").splitlines(), theirs.get(name, "").splitlines()
        names = (f"{name} v{left.version}", f"{name} v{right.version}")
        lines += unified_diff(before[:_MOST_LINES], after[:_MOST_LINES], *names, lineterm="")
    return tuple(lines[:_MOST_LINES])
