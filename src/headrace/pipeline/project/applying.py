"""Applies the definitions of a project to the catalog: what ``headrace views apply`` does.

A definition is compared with the definition of the view's newest version. Definitions with equal hashes give the same
answers::

    new         no version yet                          -> version 1
    changed     the hash differs                        -> the next version, beside the existing ones
    settings    same hash, other settings               -> the newest version gets the settings; the runner restarts it
    again       unchanged, but the version failed       -> the runner tries it again
    unchanged
    removed     a view without a file                   -> stays; only a user drops it

A view on views is ``changed`` also if the answer of a view that it reads has changed. Changes come in an order in which
every view follows those that it reads. All changes of an ``apply`` are one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.toml_files import Problem, ProjectError
from headrace.pipeline.project.views_on_views.change_sets import changed_upstream, together
from headrace.pipeline.project.views_on_views.order import order_of
from headrace.pipeline.serving.catalog import Catalog, DesiredState, Version, VersionState, View
from headrace.pipeline.serving.database import Database
from headrace.pipeline.serving.errors import UnsuitableSchema
from headrace.pipeline.serving.sql_views import check_name_is_free


class ChangeKind(StrEnum):
    NEW = "new"
    CHANGED = "changed"
    SETTINGS = "settings"
    AGAIN = "again"
    UNCHANGED = "unchanged"
    REMOVED = "removed"


@dataclass(frozen=True)
class Change:
    """
    :param version: the number of the version that is created, or of the one that stays.
    :param serving: the version that readers see now.
    :param twin: an older version with the same definition that still exists.
    :param way: how the answer of the version is kept up to date (``maintenance.ways``); empty if that is not known.
    :param because: the views that the query names and whose answers have changed.
    :param together_with: the versions of other views that take over together with this one.
    :param records: how many records the version reads before it has caught up; None if the log does not answer.
    :param sends_anew: whether [publish] or [export] of a version that stays is new or has changed.
    """

    view: str
    kind: ChangeKind
    version: int
    definition: ViewDefinition | None
    serving: int | None = None
    twin: int | None = None
    way: str = ""
    because: tuple[str, ...] = ()
    together_with: tuple[str, ...] = ()
    records: int | None = 0
    sends_anew: bool = False

    @property
    def is_new_version(self) -> bool:
        return self.kind in (ChangeKind.NEW, ChangeKind.CHANGED)

    @property
    def needs_check(self) -> bool:
        """Whether Spark checks the query: a new one, or whether its rows can be published or exported."""
        return self.is_new_version or self.sends_anew

    @property
    def has_effect(self) -> bool:
        return self.kind not in (ChangeKind.UNCHANGED, ChangeKind.REMOVED)

    @property
    def description(self) -> str:
        """Describes the change for the user."""
        return _DESCRIPTIONS[self.kind](self)


def _changed(change: Change) -> str:
    assert change.definition is not None
    beside = "" if change.serving is None else f" while v{change.serving} serves"
    how = "computes everything" if change.definition.architecture == "lambda" else "replays the log"
    then = "readers see it as soon as it has caught up"
    if change.together_with:
        then = f"it takes over together with {', '.join(change.together_with)} when all of them have caught up"
    if change.serving is not None and change.definition.kappa.switch == "manual":
        then = f"'headrace views switch {change.view}' makes readers see it"
    twin = f" (v{change.twin} has the same definition and still exists: switch to it instead?)" if change.twin else ""
    because = f", because {' and '.join(change.because)} changed" if change.because else ""
    return f"v{change.version} {how}{beside}{because}; {then}{twin}"


_DESCRIPTIONS: dict[ChangeKind, Callable[[Change], str]] = {
    ChangeKind.NEW: _changed,
    ChangeKind.CHANGED: _changed,
    ChangeKind.SETTINGS: lambda change: f"v{change.version} gives the same answers; it restarts with the new settings",
    ChangeKind.AGAIN: lambda change: f"v{change.version} failed and is tried again",
    ChangeKind.UNCHANGED: lambda change: f"v{change.version} stays",
    ChangeKind.REMOVED: lambda change: (
        f"v{change.version} keeps running although its file is gone; 'headrace views drop {change.view}' removes it"
    ),
}


def plan_changes(
    definitions: Mapping[str, ViewDefinition], views: Iterable[View], versions: Iterable[Version]
) -> list[Change]:
    """The changes that make the catalog match the files."""
    known = {view.name: view for view in views}
    by_view: dict[str, list[Version]] = {name: [] for name in known}
    for version in versions:
        if version.desired_state is not DesiredState.DROP and version.state is not VersionState.DROPPING:
            by_view[version.view].append(version)
    order = order_of({name: [view.name for view in each.views] for name, each in definitions.items()}).names
    changes = {name: _change(definitions[name], known.get(name), by_view.get(name, [])) for name in order}
    followers = {
        name: changed_upstream(definitions[name], by_view[name][-1])
        for name, change in changes.items()
        if change.kind is ChangeKind.CHANGED
    }
    for name, others in together(followers).items():
        labels = tuple(f"{other} v{changes[other].version}" for other in others)
        changes[name] = replace(changes[name], because=followers[name], together_with=labels)
    gone = sorted(name for name, there in by_view.items() if there and name not in definitions)
    removed = [Change(name, ChangeKind.REMOVED, by_view[name][-1].version, None) for name in gone]
    return [*changes.values(), *removed]


def _change(definition: ViewDefinition, view: View | None, versions: list[Version]) -> Change:
    if view is None or not versions:
        return Change(definition.name, ChangeKind.NEW, 1 if view is None else view.last_version + 1, definition)
    newest = versions[-1]
    if newest.definition_hash != definition.definition_hash:
        same = [each.version for each in versions if each.definition_hash == definition.definition_hash]
        twin = same[-1] if same else None
        return Change(
            definition.name, ChangeKind.CHANGED, view.last_version + 1, definition, view.serving_version, twin=twin
        )
    kind = ChangeKind.UNCHANGED
    if _settings_of(newest) != _settings(definition):
        kind = ChangeKind.SETTINGS
    elif newest.state is VersionState.FAILED:
        kind = ChangeKind.AGAIN
    way = str(newest.definition.get("way", ""))
    return Change(
        definition.name, kind, newest.version, definition, view.serving_version, way=way,
        sends_anew=kind is ChangeKind.SETTINGS and _sends_anew(definition, newest),
    )  # fmt: skip


def _sends_anew(definition: ViewDefinition, newest: Version) -> bool:
    was = ViewDefinition.from_dict(newest.definition)
    return any(
        now is not None and now != before
        for now, before in ((definition.publish, was.publish), (definition.export, was.export))
    )


#: What the hash of a definition covers, and the names of files.
_NO_SETTINGS = ("file", "source_file", "query", "decode", "views", "reads_directly", "answer_hash")


def _settings_of(version: Version) -> dict[str, object]:
    return _settings(ViewDefinition.from_dict(version.definition))


def _settings(definition: ViewDefinition) -> dict[str, object]:
    """The settings of a definition: everything but the query, the decoding and the names of files."""
    values = definition.as_dict()
    values["sources"] = [(source.name, source.dead_letters) for source in definition.sources]
    decodes = [decode for each in definition.inputs for decode in (each.decode, each.decode.key) if decode]
    values["registries"] = [(decode.registry, decode.registry_options) for decode in decodes]
    return {name: value for name, value in values.items() if name not in _NO_SETTINGS}


def with_switch(definitions: Mapping[str, ViewDefinition], switch: str | None) -> dict[str, ViewDefinition]:
    """The definitions with another value of ``switch``."""
    if switch is None:
        return dict(definitions)
    return {
        name: replace(definition, kappa=replace(definition.kappa, switch=switch))
        for name, definition in definitions.items()
    }


def taken_names(database: Database, changes: Iterable[Change]) -> list[Problem]:
    """The problems of views that do not serve yet and whose names something of a user has in the database."""
    problems = []
    with database.read() as connection:
        for change in changes:
            if change.definition is None or change.serving is not None or not change.has_effect:
                continue
            try:
                check_name_is_free(connection, change.view)
            except UnsuitableSchema as error:
                problems.append(Problem(change.definition.file, None, str(error)))
    return problems


def apply_changes(database: Database, catalog: Catalog, changes: Iterable[Change]) -> None:
    """
    :raises ProjectError: if another 'apply' was faster. Nothing was changed.
    """
    again = []
    with database.begin() as connection:
        for change in changes:
            definition = change.definition
            if definition is None or change.kind is ChangeKind.UNCHANGED:
                continue
            if change.kind is ChangeKind.SETTINGS:
                values = definition.as_dict() | {"way": change.way}
                catalog.set_definition(connection, change.view, change.version, values)
            elif change.is_new_version:
                _add_version(connection, catalog, change, definition)
            if not change.is_new_version:
                again.append(change.view)
    for view in again:
        catalog.add_request(view, "restart")


def _add_version(connection: Connection, catalog: Catalog, change: Change, definition: ViewDefinition) -> None:
    definition_hash, values = definition.definition_hash, definition.as_dict() | {"way": change.way}
    try:
        catalog.create_view(change.view, definition.architecture, definition_hash, connection=connection)
        made = catalog.add_version(change.view, values, definition_hash, connection=connection)
    except IntegrityError:  # both insert the view, which PostgreSQL notices when the other one commits
        raise _overtaken(definition.file) from None
    if made.version != change.version:
        raise _overtaken(definition.file)


def _overtaken(file: Path) -> ProjectError:
    message = "another 'headrace views apply' has changed the view meanwhile: nothing was changed, run it again"
    return ProjectError([Problem(file, None, message)])
