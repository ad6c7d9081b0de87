"""Routes the requests of commands to running versions. Requests are rows of the catalog; each is finished once.

    restart     try the failed versions of a view again now
    batch       Lambda: run a batch; given to the serving version, or to the newest version if none serves

A version that has taken a request finishes it itself. If the version stops before that, the request stays open and is
given to the next version that can take it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from headrace.pipeline.serving.catalog import Catalog, Request, Version, VersionKey, VersionState
from headrace.pipeline.version.running_version import Refused, RunningVersion


class RequestRouter:
    """:param try_again: makes the runner try a version again that has failed."""

    def __init__(self, catalog: Catalog, try_again: Callable[[VersionKey], None]) -> None:
        self._catalog, self._try_again = catalog, try_again
        self._given: dict[int, RunningVersion] = {}

    def route(self, versions: Mapping[str, Sequence[Version]], active: Mapping[VersionKey, RunningVersion]) -> None:
        """Gives each open request to its version, or finishes it."""
        waiting = self._catalog.open_requests()
        running = list(active.values())
        self._given = {each.id: self._given[each.id] for each in waiting if self._given.get(each.id) in running}
        for request in waiting:
            if request.id in self._given:
                continue
            try:
                self._route_one(request, versions.get(request.view, ()), active)
            except Refused as error:
                self._catalog.finish_request(request.id, error=str(error))

    def finish_restarts(self, versions: Iterable[Version]) -> None:
        """Finishes the requests of kind ``restart`` only. The others stay open for a runner that keeps running."""
        for request in self._catalog.open_requests():
            if request.kind == "restart":
                self._restart(request, [version for version in versions if version.view == request.view])

    def _restart(self, request: Request, versions: Iterable[Version]) -> None:
        for version in versions:
            self._try_again(version.key)
        self._catalog.finish_request(request.id)

    def _route_one(
        self, request: Request, versions: Sequence[Version], active: Mapping[VersionKey, RunningVersion]
    ) -> None:
        if not versions:
            raise Refused(f"the view {request.view!r} no longer exists")
        if request.kind == "restart":
            self._restart(request, versions)
            return
        version = self._addressee(request, versions)
        running = active.get(version.key)
        if running is not None and running.request(request):
            self._given[request.id] = running
        elif running is None and version.state is VersionState.FAILED:
            raise Refused(f"{version.label} failed: {version.error}")

    def _addressee(self, request: Request, versions: Sequence[Version]) -> Version:
        serving = self._catalog.view(request.view).serving_version
        return next((version for version in versions if version.version == serving), versions[-1])
