"""Follows and publishes the views of a project, beside the runner: two threads, and no Spark.

One thread reports changes (``outbox``): of views with ``[publish]`` or ``[changes] always = true`` in the newest
definition, and of views that a reader follows. A view that nobody follows costs nothing: what was kept for it is
removed when its last lease ends. The thread looks after each commit of a version in this process, and every quarter of
a second for what other processes do, such as a switch. A comparison reads the whole view, so the next one waits for
three times as long as the last one took: following takes a quarter of one core at most, and a large view is reported
less often.

The other thread publishes (``publisher``), so that a broker that is away does not hold up the change feed. A failure is
logged once, stored for ``headrace views status``, and tried again after ten seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from headrace.pipeline.changes.open_failures import AGAIN_S, OpenFailures
from headrace.pipeline.changes.outbox import Outbox
from headrace.pipeline.changes.publisher import Publisher
from headrace.pipeline.changes.publishing_state import store_failure
from headrace.pipeline.changes.reading import ChangeReader
from headrace.pipeline.project.definition import ChangeSettings, Publish, ViewDefinition
from headrace.pipeline.serving.catalog import Catalog, DesiredState, Version
from headrace.pipeline.serving.database import Database
from headrace.runtime.clock import Clock

_LOOK_S = 0.01
_LOOK_AFTER_COMMIT_S = 0.02
_LOOK_AT_DATABASE_S = 0.25
_LOOK_AT_CATALOG_S = 1.0
_PAUSE_PER_STEP = 3


class FollowedView(NamedTuple):
    """How a view is followed."""

    settings: ChangeSettings = ChangeSettings()
    publish: Publish | None = None

    @property
    def is_always(self) -> bool:
        return self.publish is not None or self.settings.always


def followed_views(versions: Iterable[Version]) -> dict[str, FollowedView]:
    """By view, what its newest definition says. A view is followed by its file, whichever version serves."""
    found = {}
    for version in versions:
        if version.desired_state is not DesiredState.DROP and version.definition:
            definition = ViewDefinition.from_dict(version.definition)
            found[version.view] = FollowedView(definition.changes, definition.publish)
    return found


class ChangeFollower:
    """:param commits: a number that changes after each commit of a version in this process. It does no I/O."""

    def __init__(
        self,
        database: Database,
        catalog: Catalog,
        clock: Clock,
        client: Mapping[str, str],
        serving_url: str,
        commits: Callable[[], int] = lambda: 0,
    ) -> None:
        self._database, self._catalog, self._clock, self._client = database, catalog, clock, client
        self._commits = commits
        self.outbox = Outbox(database, clock)
        self._reader = ChangeReader(serving_url, clock)
        self._views: dict[str, FollowedView] = {}
        self._publishers: dict[str, Publisher] = {}
        self._told = threading.Event()
        #: By view, when it may be compared again, and when publishing may be tried again.
        self._step_due_s: dict[str, float] = {}
        self._publish_due_s: dict[str, float] = {}
        self._failures = OpenFailures()

    # ------------------------------------------------------------------------------------------------------- threads

    def run(self, stop: threading.Event) -> None:
        """Follows and publishes until ``stop`` is set."""
        publishing = threading.Thread(target=self._run_publishing, args=(stop,), name="publish", daemon=True)
        publishing.start()
        looked_s = catalog_s = 0.0
        commits = -1
        while not stop.wait(_LOOK_S):
            now_s, count = time.monotonic(), self._commits()
            if now_s - looked_s < (_LOOK_AT_DATABASE_S if count == commits else _LOOK_AFTER_COMMIT_S):
                continue
            looked_s, commits = now_s, count
            try:
                if now_s - catalog_s >= _LOOK_AT_CATALOG_S:
                    self._views, catalog_s = followed_views(self._catalog.versions()), now_s
                self.report()
            except Exception as error:  # noqa: BLE001  the views go on, and the next look tries again
                self._failures.add("following the views", error)
            else:
                self._failures.end("following the views")
        self._told.set()
        publishing.join(10)
        self.close()

    def _run_publishing(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self._told.wait(_LOOK_AT_DATABASE_S)
            self._told.clear()
            self.publish_all()

    def run_once(self) -> list[str]:
        """Tells and publishes everything once.

        :return: what failed, such as ``publishing pages``.
        """
        self._views = followed_views(self._catalog.versions())
        self._step_due_s.clear()
        try:
            self.report()
            self.publish_all()
            return self._failures.names()
        finally:
            self.close()

    def close(self) -> None:
        for publisher in self._publishers.values():
            publisher.close()
        self._publishers.clear()
        self._reader.close()

    # ------------------------------------------------------------------------------------------------------- telling

    def report(self) -> None:
        """Reports the changes of all views that are followed, as far as they are due."""
        leases, now_ms = self.outbox.leases(), self._clock.wall_ms()
        followed = {view for view, until_ms in leases.items() if until_ms > now_ms and view in self._views}
        followed |= {view for view, each in self._views.items() if each.is_always}
        for view in self.outbox.views() - followed:
            self.outbox.forget(view)
        now_s = time.monotonic()
        for view in self.outbox.due([view for view in followed if now_s >= self._step_due_s.get(view, 0.0)]):
            self._step(view)

    def _step(self, view: str) -> None:
        began_s = time.monotonic()
        try:
            self.outbox.step(view, self._views[view].settings)
        except Exception as error:  # noqa: BLE001  the other views go on, and the next look tries again
            self._step_due_s[view] = time.monotonic() + AGAIN_S
            self._failures.add(f"following {view}", error)
            return
        now_s = time.monotonic()
        self._step_due_s[view] = now_s + _PAUSE_PER_STEP * (now_s - began_s)
        self._failures.end(f"following {view}")
        self._told.set()

    # ---------------------------------------------------------------------------------------------------- publishing

    def publish_all(self) -> None:
        """Publishes what the topics lack."""
        wanted = {view: each.publish for view, each in self._views.items() if each.publish is not None}
        for view, publisher in list(self._publishers.items()):
            if wanted.get(view) != publisher.publish:
                publisher.close()
                del self._publishers[view]
        for view, publish in wanted.items():
            if time.monotonic() >= self._publish_due_s.get(view, 0.0):
                self._publish(view, publish)

    def _publish(self, view: str, publish: Publish) -> None:
        publisher = self._publishers.get(view)
        if publisher is None:
            publisher = Publisher(self._database, self._reader, self._clock, self._client, view, publish)
            self._publishers[view] = publisher
        try:
            while publisher.advance():
                pass
        except Exception as error:  # noqa: BLE001  the other views go on; a new publisher continues from the position
            publisher.close()
            del self._publishers[view]
            self._publish_due_s[view] = time.monotonic() + AGAIN_S
            self._failures.add(f"publishing {view}", error)
            store_failure(self._database, view, publish, error, self._clock.wall_ms())
            return
        self._publish_due_s.pop(view, None)
        self._failures.end(f"publishing {view}")
