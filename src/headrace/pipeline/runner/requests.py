"""What commands ask of the runner beside what is wanted of a version: requests in the catalog, each answered once.

    restart     try again what failed of a view, now
    batch       of a Lambda view; passed on to the version that serves, or to the newest if none does

A version answers by itself what it has taken. If it ends before, the request is still open, and is given to whoever
comes next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from headrace.pipeline.runner.retries import Key
from headrace.pipeline.serving.catalog import Catalog, Request, State, Version
from headrace.pipeline.version.running_version import Refused, RunningVersion


class RequestDesk:
    """:param try_again: forgets that a version has failed."""

    def __init__(self, catalog: Catalog, try_again: Callable[[Key], None]) -> None:
        self._catalog, self._try_again = catalog, try_again
        self._given: dict[int, Key] = {}

    def pass_on(self, versions: Mapping[str, Sequence[Version]], at_work: Mapping[Key, RunningVersion]) -> None:
        """Gives each request to whoever it is for, or answers it."""
        waiting = self._catalog.open_requests()
        self._given = {each.id: self._given[each.id] for each in waiting if each.id in self._given}
        for request in waiting:
            if request.id in self._given:
                continue
            try:
                self._see_to(request, versions.get(request.view, ()), at_work)
            except Refused as error:
                self._catalog.answer(request.id, error=str(error))

    def restart(self, versions: Iterable[Version]) -> None:
        """Answers those that ask to try again what failed; the others are left to a runner that goes on."""
        for request in self._catalog.open_requests():
            if request.kind == "restart":
                self._restart(request, [version for version in versions if version.view == request.view])

    def _restart(self, request: Request, versions: Iterable[Version]) -> None:
        for version in versions:
            self._try_again((version.view, version.version))
        self._catalog.answer(request.id)

    def let_go(self, key: Key) -> None:
        """This version is not at work any more."""
        self._given = {request: of for request, of in self._given.items() if of != key}

    def _see_to(self, request: Request, versions: Sequence[Version], at_work: Mapping[Key, RunningVersion]) -> None:
        if not versions:
            raise Refused(f"there is no view {request.view!r} any more")
        if request.kind == "restart":
            self._restart(request, versions)
            return
        version = self._addressee(request, versions)
        key = version.view, version.version
        running = at_work.get(key)
        if running is not None and running.request(request):
            self._given[request.id] = key
        elif running is None and version.state is State.FAILED:
            raise Refused(f"{version.who} failed: {version.error}")

    def _addressee(self, request: Request, versions: Sequence[Version]) -> Version:
        serving = self._catalog.view(request.view).serving_version
        return next((version for version in versions if version.version == serving), versions[-1])
