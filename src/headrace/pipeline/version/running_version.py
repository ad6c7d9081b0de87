"""A version of a view while it runs: the interface that the runner uses for both architectures.

``lambda_.view.LambdaView`` and ``kappa.view.KappaView`` implement it. The runner calls only this::

    start() ... failure()? lag()? request()? ... stop()     runs as a stream, in its own threads or Spark's
    run_once()                                              processes everything that the log has now, then returns
    drop()                                                  removes everything of the version; it may never have run

**States.** The runner calls ``start`` and ``run_once`` in state ``starting``. Each sets ``VersionEvent.STARTED`` when
the tables of the version exist. The runner sets all other events: caught up, switched, stopped, failed, dropped.

**The SELECT of the SQL view.** The catalog stores what the SQL view selects when the version serves, so that a command
can switch views without Spark. A version writes it (``catalog.set_select``) in the transaction that creates its tables,
and again whenever it changes.

**Work in flight.** A version marks in ``work`` what Spark is doing for it. If the Java process dies, the runner finds
with these marks which version caused it (``runner.quarantine``).

A process may die at any moment, and another process may then start the same version again. Everything that has to
survive is in the serving database, the log, the archive and the checkpoint.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from headrace.pipeline.progress.lag import Lag
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.serving.catalog import Request, Version
from headrace.pipeline.serving.errors import ServingError
from headrace.pipeline.version.context import RunContext
from headrace.pipeline.version.work_in_flight import WorkInFlight

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from headrace.pipeline.decoding.dead_letters import DeadLetters
    from headrace.pipeline.project.source_definition import SourceDefinition

#: A version that has caught up counts as fallen behind when its lag is this many times ``caught_up_within``.
_FALLEN_BEHIND_FACTOR = 10


class RunningVersion(ABC):
    def __init__(self, context: RunContext, version: Version) -> None:
        self.context = context
        self.version = version
        self.definition = ViewDefinition.from_dict(version.definition)
        self.work = WorkInFlight()

    @property
    def label(self) -> str:
        """``pages v2``."""
        return self.version.label

    def dead_letters(self, source: SourceDefinition | None = None) -> DeadLetters:
        """A sender of this version's dead letters, which stores how far they were sent. The caller closes it.

        :param source: the source whose records do not decode; None if the version has only records of its own.
        """
        from headrace.pipeline.decoding.dead_letters import DeadLetters
        from headrace.pipeline.serving.catalog_tables.sent_dead_letters import SentDeadLetters

        sent = SentDeadLetters(self.context.database, *self.version.key)
        topic = source.dead_letters if source is not None else ""
        definition = replace(self.definition, dead_letters=topic) if topic else self.definition
        return DeadLetters(self.context.project, definition, sent)

    @abstractmethod
    def start(self) -> None:
        """Starts the version and returns soon. If it raises, the version does not run and nothing is left to stop."""

    @abstractmethod
    def stop(self, timeout_s: float = 30) -> None:
        """Stops the version after the transaction in progress. Does nothing if the version does not run."""

    @abstractmethod
    def failure(self) -> BaseException | None:
        """Why the version ended by itself; None if it runs or was stopped."""

    @abstractmethod
    def lag(self) -> Lag:
        """The lag as last observed. Does no I/O."""

    def reading(self) -> int:
        """How many records the batch in progress has read and not committed. Asks Spark."""
        return 0

    @abstractmethod
    def select_sql(self, connection: Connection) -> str:
        """The SELECT of the SQL view when this version serves."""

    @abstractmethod
    def run_once(self) -> None:
        """Processes everything that the log has now, as a batch. Raises if anything goes wrong."""

    def stepped(self) -> SteppedVersion | None:
        """The version for a caller that runs its micro-batches itself; None if only ``run_once`` can do that."""
        return None

    @abstractmethod
    def drop(self) -> None:
        """Removes the tables, the checkpoint and the consumer group.

        The version does not run. It may never have run, and an earlier drop may have been interrupted.
        """

    def request(self, request: Request) -> bool:
        """Accepts a command's request, which the version then finishes itself (``catalog.finish_request``).

        ``batch`` with ``{"full": bool}`` is the only kind so far.

        :return: False if the version cannot take the request now.
        :raises Refused: if the version will never take this request.
        """
        raise Refused(f"{self.label} is a {self.definition.architecture} view, which has no request {request.kind!r}")

    def has_caught_up(self) -> bool:
        """Whether the version may serve. A Lambda view also needs its first batch.

        Versions with common topics have the same offsets (``common_cut``), so that a switch does not change offsets.
        """
        records = self.lag().records
        is_near = records is not None and records <= self.definition.kappa.caught_up_within
        return is_near and self.context.common_cut.may_serve(self.version.key, self.context.clock)

    def has_fallen_behind(self) -> bool:
        """Whether the lag is far above the bound. Two bounds keep a version near one from changing its state often."""
        records = self.lag().records
        return records is not None and records > _FALLEN_BEHIND_FACTOR * max(1, self.definition.kappa.caught_up_within)


class SteppedVersion(Protocol):
    """A version without threads: open, advance as often as there are records, close."""

    def open(self) -> None:
        """If it raises, nothing is left to close."""

    def advance(self) -> None:
        """Brings the version to the end of the log: by micro-batches, if its way has them."""

    def rebuild(self) -> None:
        """Runs the next batch now. Does nothing if the way has no batches."""

    def close(self) -> None: ...


class Refused(ServingError):
    """A request that this version will never take. The message is the answer to the command."""
