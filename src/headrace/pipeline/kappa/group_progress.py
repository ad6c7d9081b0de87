"""Commits the progress of a version to its consumer group, so that every tool of Kafka's can show the lag.

The group is only written, never read: the serving database has the progress. So the group may be a second behind, and
a commit that fails is not repeated until the next one.
"""

from __future__ import annotations

from logging import getLogger
from typing import TYPE_CHECKING

from headrace.client.errors import HeadraceError
from headrace.pipeline.progress.offsets import by_partition
from headrace.pipeline.spark.options import shared_client_options

if TYPE_CHECKING:
    from headrace.client.admin.sync_admin import Admin
    from headrace.pipeline.serving.catalog import Offsets
    from headrace.pipeline.version.context import RunContext

logger = getLogger(__name__)
_EVERY_MS = 1_000


class GroupProgress:
    """One thread at a time calls its methods."""

    def __init__(self, context: RunContext, group: str) -> None:
        self._context, self._group = context, group
        self._admin: Admin | None = None
        self._shown: Offsets | None = None
        self._due_ms = 0

    def show(self, offsets: Offsets | None, *, now: bool = False) -> None:
        """Commits the offsets, if they are new and the last commit is a second ago.

        :param now: whether to commit even if the last commit is less than a second ago.
        """
        now_ms = self._context.clock.monotonic_ms()
        if offsets is None or offsets == self._shown or (now_ms < self._due_ms and not now):
            return
        self._due_ms = now_ms + _EVERY_MS
        try:
            if self._admin is None:
                from headrace.client.admin.sync_admin import Admin

                self._admin = Admin(config=shared_client_options(self._context.client_options))
            self._admin.alter_group_offsets(self._group, by_partition(offsets)).all()
            self._shown = offsets
        except HeadraceError as error:  # the database has the progress; the next commit may succeed
            logger.warning("cannot commit the progress to the group %s: %s", self._group, error)

    def close(self) -> None:
        if self._admin is not None:
            admin, self._admin = self._admin, None
            admin.close()
