"""Finds the versions that readers are switched to together, so that the views of a graph fit each other.

A version of a view on views has the queries of its upstream views in its definition, each with its ``answer_hash``.
The versions that serve *fit* if every upstream view serves the answer that the views below have in their definitions.
A switch to a version must keep what fits. So a switch is a set of versions, found from the definitions in the catalog::

    revenue v1 serves, top v1 reads it.  'apply' made revenue v2 and top v2 (which reads revenue v2).

    switch to revenue v2   top v1 does not fit revenue v2  -> top v2 joins the set
    switch to top v2       revenue v1 does not fit top v2  -> revenue v2 joins the set, then all others that read it
    rollback of either     the same with v1

No set is stored, so there is nothing to correct when a later ``apply`` replaces a version of a set, when a version is
dropped, or when a process dies: the next process finds the set again. One transaction switches the whole set
(``Catalog.switch``).

A view that has never served asks nothing of others: in a new project each view serves as soon as it has caught up.

A view that reads a switched view and has no version that fits is left behind: it was removed from the files, and runs
until it is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from headrace.client.errors import HeadraceError
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.serving.catalog import DesiredState, Version, VersionState, View


class NoSwitchSet(HeadraceError):
    """There are no versions that fit each other."""


@dataclass(frozen=True)
class SwitchSet:
    """
    :param versions: by view in alphabetical order; those that serve already are not among them.
    :param left_behind: the views that read a view of the set, and have no version that fits.
    """

    versions: tuple[Version, ...]
    left_behind: tuple[str, ...] = ()

    def others(self, version: Version) -> list[Version]:
        return [each for each in self.versions if each.key != version.key]


def upstream_answers_of(version: Version) -> dict[str, str]:
    """By name, the answer hash of each view that a version reads, directly or through others."""
    views = version.definition.get("views") or []
    assert isinstance(views, list)
    return {each["name"]: each["answer_hash"] for each in views}


def answer_hash_of(version: Version) -> str:
    stored = version.definition.get("answer_hash")  # missing in versions of earlier releases
    return str(stored) if stored else ViewDefinition.from_dict(version.definition).answer_hash


def has_neighbours(version: Version, versions: Iterable[Version]) -> bool:
    """Whether the version reads a view, or a version of another view reads its view."""
    return bool(version.definition.get("views")) or any(version.view in upstream_answers_of(each) for each in versions)


def switch_set(
    version: Version, views: Iterable[View], versions: Iterable[Version], *, back: bool = False
) -> SwitchSet:
    """The versions that readers are switched to together with a version.

    :param versions: all versions of all views.
    :param back: whether to prefer the version of each view that served before; otherwise the newest one.
    :raises NoSwitchSet: if an upstream view has no version that fits.
    """
    return _Search(version, views, versions, back=back).result()


class _Search:
    def __init__(self, version: Version, views: Iterable[View], versions: Iterable[Version], *, back: bool) -> None:
        self._first, self._back = version, back
        self._views = {view.name: view for view in views}
        self._alive: dict[str, list[Version]] = {name: [] for name in self._views}
        self._serving: dict[str, Version] = {}
        for each in versions:
            if each.desired_state is not DesiredState.DROP and each.state is not VersionState.DROPPING:
                self._alive[each.view].append(each)
            if self._views[each.view].serving_version == each.version:
                self._serving[each.view] = each
        self._chosen = {version.view: version}
        self._left: set[str] = set()

    def result(self) -> SwitchSet:
        while (misfit := next(self._misfits(), None)) is not None:
            reader, upstream, answer = misfit
            if upstream in self._chosen and reader not in self._chosen:
                self._choose_reader(reader)
            else:
                self._choose_upstream(reader, upstream, answer)
        moved = [each for each in self._chosen.values() if self._serving.get(each.view) != each]
        return SwitchSet(tuple(sorted(moved, key=lambda each: each.view)), tuple(sorted(self._left)))

    def _misfits(self) -> Iterator[tuple[str, str, str]]:
        """Each reader, upstream view, and the answer that the reader has of it; one of both is chosen already."""
        now = {**self._serving, **self._chosen}
        for name in sorted(now.keys() - self._left):
            for upstream, answer in sorted(upstream_answers_of(now[name]).items()):
                if upstream not in now or not (name in self._chosen or upstream in self._chosen):
                    continue
                if answer_hash_of(now[upstream]) != answer:
                    yield name, upstream, answer

    def _choose_reader(self, name: str) -> None:
        fitting = [each for each in self._alive[name] if self._fits(each)]
        if fitting:
            self._chosen[name] = self._preferred(name, fitting)
        else:
            self._left.add(name)

    def _choose_upstream(self, reader: str, upstream: str, answer: str) -> None:
        wanted = [each for each in self._alive[upstream] if answer_hash_of(each) == answer]
        fitting = [] if upstream in self._chosen else [each for each in wanted if self._fits(each)]
        if not fitting:
            label = self._chosen[reader].label
            raise NoSwitchSet(
                f"{label} reads {upstream} with a definition that no version of {upstream} has"
                + (" which fits the others" if wanted else "")
                + ": run 'headrace views apply'"
            )
        self._chosen[upstream] = self._preferred(upstream, fitting)

    def _fits(self, candidate: Version) -> bool:
        """Whether a version and the chosen versions of other views have the same answers of each other."""
        answers = upstream_answers_of(candidate)
        return all(
            answers.get(each.view, answer_hash_of(each)) == answer_hash_of(each)
            and upstream_answers_of(each).get(candidate.view, answer_hash_of(candidate)) == answer_hash_of(candidate)
            for each in self._chosen.values()
        )

    def _preferred(self, name: str, fitting: list[Version]) -> Version:
        previous = self._views[name].previous_version
        before = [each for each in fitting if each.version == previous] if self._back else []
        return (before or fitting)[-1]


def readers_of(view: str, views: Mapping[str, View], versions: Iterable[Version]) -> list[str]:
    """The other views that read a view: by the version that serves, and by the newest version."""
    newest: dict[str, Version] = {}
    serving: list[Version] = []
    for each in versions:
        if each.view == view or each.desired_state is DesiredState.DROP or each.state is VersionState.DROPPING:
            continue
        newest[each.view] = each
        if views[each.view].serving_version == each.version:
            serving.append(each)
    return sorted({each.view for each in (*newest.values(), *serving) if view in upstream_answers_of(each)})
