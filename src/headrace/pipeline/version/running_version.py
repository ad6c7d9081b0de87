"""One version of one view, at work: what the runner asks of both architectures, and what it gives them.

``lambda_view.LambdaView`` and ``versions.KappaView`` are the two. The runner knows only this::

    start() ... failure()? behind()? request()? ... stop()      as a stream, in threads of its own or Spark's
    run_once()                                                  everything that is there now, then it returns
    drop()                                                      nothing is left of it, whether it ever ran or not

**States.** A version is given to ``start`` and ``run_once`` in state ``starting``; each sets ``Event.STARTED`` when its
tables are there. All other events are the runner's: caught up, switched, stopped, failed, dropped.

**What the SQL view is** when a version serves is stored in the catalog, so that a command can switch without Spark: a
version writes it (``catalog.set_select``) in the transaction that makes its tables, and again whenever that changes.

**What it has Spark do** is marked in ``work``: if the Java process dies, ``suspects`` finds out by that who did it.

A process may die at any moment and another one start the same version again: everything that counts is in the serving
database, the log, the archive and the checkpoint.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from headrace.pipeline.progress.lag import Behind
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.serving.catalog import Request, Version
from headrace.pipeline.serving.errors import ServingError
from headrace.pipeline.version.context import Surroundings
from headrace.pipeline.version.work_in_flight import WorkInFlight

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from headrace.pipeline.decoding.dead_letters import DeadLetters

#: A version that has caught up counts as behind again when it is so many times as far behind as that.
_FALLEN_BEHIND = 10


class RunningVersion(ABC):
    def __init__(self, around: Surroundings, version: Version) -> None:
        self.around = around
        self.version = version
        self.definition = ViewDefinition.from_dict(version.definition)
        self.work = WorkInFlight()

    @property
    def who(self) -> str:
        """``pages v2``."""
        return self.version.who

    def dead_letters(self) -> DeadLetters:
        """A sender of this version's, which remembers what was sent; the caller closes it."""
        from headrace.pipeline.decoding.dead_letters import DeadLetters
        from headrace.pipeline.serving.sent_dead_letters import DeadLetterNotes

        notes = DeadLetterNotes(self.around.database, self.version.view, self.version.version)
        return DeadLetters(self.around.project, self.definition, notes)

    @abstractmethod
    def start(self) -> None:
        """Returns soon; raises what keeps it from starting, and is then as if it had not been called."""

    @abstractmethod
    def stop(self, timeout_s: float = 30) -> None:
        """Ends after the transaction that is under way. Nothing if it does not run."""

    @abstractmethod
    def failure(self) -> BaseException | None:
        """Why it ended by itself."""

    @abstractmethod
    def behind(self) -> Behind:
        """As last seen: no I/O."""

    def reading(self) -> int:
        """Records that the batch under way has read, and has not committed. Asks Spark."""
        return 0

    @abstractmethod
    def select_sql(self, connection: Connection) -> str:
        """What the SQL view is when this version serves."""

    @abstractmethod
    def run_once(self) -> None:
        """Everything that is there now, as a batch; raises what went wrong."""

    @abstractmethod
    def drop(self) -> None:
        """Removes tables, checkpoint and consumer group. It does not run; perhaps it never did, or was dropped half."""

    def request(self, request: Request) -> bool:
        """Takes a request of a command, which it then answers itself (``catalog.answer``), or says no.

        ``batch`` with ``{"full": bool}`` is the only kind so far.

        :raises Refused: if there is no point in asking again.
        """
        raise Refused(f"{self.who} is a {self.definition.architecture} view, which has no {request.kind}")

    def has_caught_up(self) -> bool:
        """Whether it may serve. A Lambda view also needs its first batch."""
        records = self.behind().records
        return records is not None and records <= self.definition.kappa.caught_up_within

    def has_fallen_behind(self) -> bool:
        """Not the opposite: one that is right at the bound must not change its state with every record."""
        records = self.behind().records
        return records is not None and records > _FALLEN_BEHIND * max(1, self.definition.kappa.caught_up_within)


class Refused(ServingError):
    """A request that this version will never do; the message is the answer."""
