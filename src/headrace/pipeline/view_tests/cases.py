"""The tests of views, as they are run: records as bytes, and the rows that are expected after each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.view_tests.places import Path as Place


@dataclass(frozen=True)
class Record:
    """A record that is sent to the log."""

    topic: str
    partition: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True)
class Step:
    """Records, and what the view shows when it has read them.

    :param rows: the expected rows by column name; None if the rows are not checked.
    :param dead_letters: how many records did not decode since the test began; None if that is not checked.
    :param place: the place of the step in its file.
    """

    name: str
    records: tuple[Record, ...]
    rows: tuple[Mapping[str, Any], ...] | None
    dead_letters: int | None
    place: Place = ()
    line: int | None = None


@dataclass(frozen=True)
class ViewTest:
    """
    :param architectures: those that the test names; empty for all that the view allows.
    :param is_ordered: whether the order of the rows counts.
    """

    file: Path
    name: str
    view: str
    steps: tuple[Step, ...]
    architectures: tuple[str, ...] = ()
    is_ordered: bool = False
    line: int | None = None

    @property
    def label(self) -> str:
        """``revenue: a late order counts``."""
        return f"{self.view}: {self.name}"

    @property
    def topics(self) -> dict[str, int]:
        """The topics of the records, and how many partitions each of them needs."""
        found: dict[str, int] = {}
        for step in self.steps:
            for record in step.records:
                found[record.topic] = max(found.get(record.topic, 1), record.partition + 1)
        return found


@dataclass(frozen=True)
class FoundRows:
    """The rows of a view, as JSON values (``cells``).

    :param rows: the values of each row, in the order of the columns.
    """

    rows: Sequence[Sequence[Any]]
    dead_letters: int


@dataclass(frozen=True)
class ArchitectureOutcome:
    """The outcome of the steps of a test in one architecture.

    :param way: how the answer was kept up to date.
    :param skipped: why the architecture was not tried; empty if it was.
    :param error: why it ended early; empty if it did not.
    :param steps: what was found after each step, as far as the test got.
    :param after_batch: what was found after a last batch over all records; None if there was none.
    """

    architecture: str
    way: str = ""
    skipped: str = ""
    error: str = ""
    steps: tuple[FoundRows, ...] = ()
    after_batch: FoundRows | None = None


@dataclass(frozen=True)
class Outcome:
    """The outcome of a test in all architectures.

    :param columns: the columns of the answer, with their Arrow types.
    :param key: the columns that identify a row, if they are known.
    :param batches: Spark's batch answer after each step; empty if there is none to compare with.
    :param note: what a user should know, such as why there is no batch answer.
    :param batch_error: why Spark could not compute a batch answer; empty if it could.
    """

    columns: Any
    key: tuple[str, ...]
    architectures: tuple[ArchitectureOutcome, ...]
    batches: tuple[Sequence[Sequence[Any]], ...] = ()
    note: str = ""
    seconds: float = 0.0
    batch_error: str = ""


@dataclass(frozen=True)
class Run:
    """A test with the definition of its view."""

    test: ViewTest
    definition: ViewDefinition
