"""From the files of a project to versions in the catalog: what ``headrace views apply`` does.

A definition is compared with that of the view's newest version by its hash, which is the same for the same answers::

    new         no version yet                     -> version 1
    changed     another answer                     -> the next version, beside those that are there
    settings    the same answer, run otherwise     -> the newest version gets them, and is restarted by the runner
    again       the same, and it failed            -> the runner tries it again
    unchanged
    removed     a view without a file              -> goes on; only a user drops it

All changes of an ``apply`` are one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.serving.catalog import Catalog, State, Version, View, Wanted
from headrace.pipeline.serving.database import Database


class Kind(StrEnum):
    NEW = "new"
    CHANGED = "changed"
    SETTINGS = "settings"
    AGAIN = "again"
    UNCHANGED = "unchanged"
    REMOVED = "removed"


@dataclass(frozen=True)
class Change:
    """
    :param version: the one that there will be, or that stays.
    :param serving: the version that readers see now.
    :param twin: an older version with the same definition, that is still there.
    """

    view: str
    kind: Kind
    version: int
    definition: ViewDefinition | None
    serving: int | None = None
    twin: int | None = None

    @property
    def needs_check(self) -> bool:
        return self.kind in (Kind.NEW, Kind.CHANGED)

    @property
    def in_words(self) -> str:
        """What will happen."""
        return _WORDS[self.kind](self)


def _changed(change: Change) -> str:
    assert change.definition is not None
    beside = "" if change.serving is None else f" beside v{change.serving}, which serves meanwhile"
    way = "computes everything" if change.definition.architecture == "lambda" else "replays the log"
    then = "readers see it as soon as it has caught up"
    if change.serving is not None and change.definition.kappa.switch == "manual":
        then = f"'headrace views switch {change.view}' makes readers see it"
    twin = f" (v{change.twin} has the same definition and is still there: switch to it instead?)" if change.twin else ""
    return f"v{change.version} {way}{beside}; {then}{twin}"


_WORDS: dict[Kind, Callable[[Change], str]] = {
    Kind.NEW: _changed,
    Kind.CHANGED: _changed,
    Kind.SETTINGS: lambda change: f"v{change.version} gives the same answers; it restarts with its new settings",
    Kind.AGAIN: lambda change: f"v{change.version} failed, and is tried again",
    Kind.UNCHANGED: lambda change: f"v{change.version} stays",
    Kind.REMOVED: lambda change: (
        f"v{change.version} goes on though its file is gone; 'headrace views drop {change.view}' ends it"
    ),
}


def plan_changes(
    definitions: Mapping[str, ViewDefinition], views: Iterable[View], versions: Iterable[Version]
) -> list[Change]:
    """What is to be done so that the catalog has what the files say."""
    known = {view.name: view for view in views}
    by_view: dict[str, list[Version]] = {name: [] for name in known}
    for version in versions:
        if version.wanted is not Wanted.DROP and version.state is not State.DROPPING:
            by_view[version.view].append(version)
    changes = [
        _change(definition, known.get(name), by_view.get(name, [])) for name, definition in sorted(definitions.items())
    ]
    gone = sorted(name for name, there in by_view.items() if there and name not in definitions)
    removed = [Change(name, Kind.REMOVED, by_view[name][-1].version, None) for name in gone]
    return changes + removed


def _change(definition: ViewDefinition, view: View | None, versions: list[Version]) -> Change:
    if view is None or not versions:
        return Change(definition.name, Kind.NEW, 1 if view is None else view.last_version + 1, definition)
    newest = versions[-1]
    if newest.definition_hash != definition.definition_hash:
        same = [each.version for each in versions if each.definition_hash == definition.definition_hash]
        twin = same[-1] if same else None
        return Change(definition.name, Kind.CHANGED, view.last_version + 1, definition, view.serving_version, twin=twin)
    kind = Kind.UNCHANGED
    if _settings_of(newest) != _settings(definition):
        kind = Kind.SETTINGS
    elif newest.state is State.FAILED:
        kind = Kind.AGAIN
    return Change(definition.name, kind, newest.version, definition, view.serving_version)


def _settings_of(version: Version) -> dict[str, object]:
    return _settings(ViewDefinition.from_dict(version.definition))


def _settings(definition: ViewDefinition) -> dict[str, object]:
    """All of it, as what is the answer is known to be the same; but not where it is written down."""
    values = definition.as_dict()
    return {name: value for name, value in values.items() if name not in ("file", "query", "decode")}


def with_switch(definitions: Mapping[str, ViewDefinition], switch: str | None) -> dict[str, ViewDefinition]:
    """The definitions, with another word on when to switch."""
    if switch is None:
        return dict(definitions)
    return {
        name: replace(definition, kappa=replace(definition.kappa, switch=switch))
        for name, definition in definitions.items()
    }


def apply_changes(database: Database, catalog: Catalog, changes: Iterable[Change]) -> None:
    again = []
    with database.begin() as connection:
        for change in changes:
            definition = change.definition
            if definition is None or change.kind is Kind.UNCHANGED:
                continue
            if change.kind is Kind.AGAIN:
                again.append(change.view)
                continue
            name, values = definition.name, definition.as_dict()
            if change.kind is Kind.SETTINGS:
                catalog.set_definition(connection, name, change.version, values)
                again.append(change.view)
                continue
            essence = definition.definition_hash
            catalog.create_view(name, definition.architecture, essence, connection=connection)
            made = catalog.add_version(name, values, essence, connection=connection)
            assert made.version == change.version, f"{name}: another apply was faster"
    for view in again:
        catalog.ask(view, "restart")
