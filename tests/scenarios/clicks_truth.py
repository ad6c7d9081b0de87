"""Writes clicks to a topic, reads views of them, and checks the answers without Spark.

``Clicks`` writes in the background. ``Watcher`` reads views all the time, during every fault, and keeps the answers.
``Truth`` counts the topic itself at the end. Each answer says up to which offsets it counts, so each answer must be
exactly what the truth says for these offsets.
"""

import json
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from views_process import COLUMNS, TOPIC, VIEWS, ViewsProject

from headrace import Admin, Consumer, Producer, TopicPartition
from headrace.client.admin.types import NewTopic
from headrace.pipeline.serving.errors import ServingError
from headrace.pipeline.serving.queries.query import Answer

PARTITIONS = 3
PLACES = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
_CLICKS_PER_TICK, _TICK_S = 60, 0.05
_BAD = b"this is no JSON"
_BAD_ONE_IN = 100
_MOST_SAMPLES = 400


def click_values(count: int, pick: random.Random) -> list[bytes]:
    """One in a hundred does not decode: it must be counted as such, and do no harm."""
    return [
        _BAD if pick.randrange(_BAD_ONE_IN) == 0 else
        b'{"visitor":"v%d","page":"p%d","ms":%d}' % (pick.randrange(50), pick.randrange(8), pick.randrange(1000))
        for _ in range(count)
    ]  # fmt: skip


class Clicks:
    """Writes, now or all the time, to a topic that is there."""

    def __init__(self, address: str, pick: random.Random) -> None:
        self._pick = pick
        self._producer = Producer(bootstrap_servers=address)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="clicks")
        self._error: Exception | None = None

    def write(self, count: int) -> None:
        for index in range(PARTITIONS):
            self._producer.send_arrow(TOPIC, self._table(count // PARTITIONS), partition=index)
        self._producer.flush()

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._ends.wait(_TICK_S):
                partition = self._pick.randrange(PARTITIONS)
                self._producer.send_arrow(TOPIC, self._table(_CLICKS_PER_TICK), partition=partition)
        except Exception as error:  # noqa: BLE001  raised again where the test sees it
            self._error = error

    def _table(self, count: int) -> pa.Table:
        return pa.table({"value": click_values(count, self._pick)})

    def stop(self) -> None:
        """All that was written is in the log."""
        self._ends.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._producer.flush()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        self._ends.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._producer.close()


def make_topic(address: str) -> None:
    with Admin(bootstrap_servers=address) as admin:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)]).all()


class Truth:
    """The topic, read from its start to its end.

    :param earlier: what it had before its start was cut.
    """

    def __init__(self, address: str, earlier: "Truth | None" = None) -> None:
        parts = [] if earlier is None else earlier._records.to_batches()
        with Consumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
            consumer.assign(PLACES)
            ends = consumer.end_offsets(*PLACES)
            while any(consumer.position(place) < end for place, end in ends.items()):
                parts.append(consumer.poll_arrow(500).select(["partition", "offset", "value"]))
        self._records = records = pa.Table.from_batches(parts)
        self.next_offsets = {place.partition: end for place, end in ends.items()}
        self._partitions = records["partition"].to_numpy()
        self._offsets = records["offset"].to_numpy()
        values = [None if value == _BAD else json.loads(value) for value in records["value"].to_pylist()]
        self._is_good = np.array([value is not None for value in values])
        self._ms = np.array([value["ms"] if value else 0 for value in values])
        self._keys = {
            column: np.unique([value[column] if value else "" for value in values], return_inverse=True)
            for column in COLUMNS.values()
        }

    def _is_within(self, next_offsets: Mapping[int, int]) -> np.ndarray:
        bounds = np.array([next_offsets.get(index, 0) for index in range(PARTITIONS)])
        return self._offsets < bounds[self._partitions]

    def bad(self, next_offsets: Mapping[int, int]) -> int:
        return int((self._is_within(next_offsets) & ~self._is_good).sum())

    def rows(self, column: str, next_offsets: Mapping[int, int]) -> dict[str, dict[str, int]]:
        """By key, what a view of either query may say."""
        chosen = self._is_within(next_offsets) & self._is_good
        names, inverse = self._keys[column]
        keys, ms = inverse[chosen], self._ms[chosen]
        slowest, quickest = np.full(len(names), -1), np.full(len(names), 10**6)
        np.maximum.at(slowest, keys, ms)
        np.minimum.at(quickest, keys, ms)
        clicks = np.bincount(keys, minlength=len(names))
        total_ms = np.bincount(keys, weights=ms, minlength=len(names))
        return {
            str(name): {"clicks": int(clicks[at]), "total_ms": int(total_ms[at]), "slowest": int(slowest[at]),
                        "quickest": int(quickest[at])}
            for at, name in enumerate(names) if clicks[at]
        }  # fmt: skip

    def check(self, sample: "Sample") -> None:
        column = COLUMNS[sample.view]
        right = self.rows(column, sample.next_offsets)
        told = {row[0]: dict(zip(sample.columns[1:], row[1:], strict=True)) for row in sample.rows}
        assert sample.columns[0] == column, sample
        assert len(told) == len(sample.rows), f"{sample.who}: a key has two rows"
        assert told.keys() == right.keys(), f"{sample.who}: {sorted(told)} instead of {sorted(right)}"
        for key, values in told.items():
            assert values.items() <= right[key].items(), f"{sample.who}: {key} is {values} instead of {right[key]}"


@dataclass(frozen=True)
class Sample:
    """An answer of a view."""

    view: str
    version: int
    next_offsets: dict[int, int]
    columns: list[str]
    rows: list[tuple[object, ...]]

    @property
    def place(self) -> object:
        return self.version, self.next_offsets

    @property
    def who(self) -> str:
        return f"{self.view} v{self.version} as of {self.next_offsets}"

    @classmethod
    def of(cls, view: str, answer: Answer) -> "Sample":
        (as_of,) = answer.as_of
        return cls(view, as_of.version, as_of.offsets[TOPIC], answer.columns, answer.rows)


class AnySample(Protocol):
    """An answer of a view, whose ``place`` is different if the answer may be."""

    @property
    def place(self) -> object: ...


AnySampleT = TypeVar("AnySampleT", bound=AnySample)


class Watcher(Generic[AnySampleT]):
    """Reads views all the time, from when they first serve. No error is allowed unless ``may_fail``.

    :param sample_of: makes a sample of a view's name and answer.
    """

    def __init__(
        self, project: ViewsProject, views: Sequence[str], sample_of: Callable[[str, Answer], AnySampleT]
    ) -> None:
        self._project, self._views, self._sample_of = project, views, sample_of
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watcher")
        self.samples: list[AnySampleT] = []
        self.errors: list[Exception] = []
        self.may_fail = False

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ends.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        seen: dict[str, object] = {}
        while not self._ends.wait(0.05):
            for view in self._views:
                try:
                    sample = self._sample_of(view, self._project.ask(view))
                except Exception as error:  # noqa: BLE001  the test tells of it
                    if not (self.may_fail and isinstance(error, ServingError)):
                        self.errors.append(error)
                    continue
                if seen.get(view) != sample.place:
                    seen[view] = sample.place
                    self._keep(sample)

    def _keep(self, sample: AnySampleT) -> None:
        self.samples.append(sample)
        if len(self.samples) > _MOST_SAMPLES:
            del self.samples[1::2]


def check_everything(project: ViewsProject, address: str, watcher: Watcher[Sample] | None = None) -> Truth:
    """Nothing is written any more: both views come to the end of the log, and were right all the way."""
    truth = Truth(address)
    for view in VIEWS:
        project.waits_until(
            lambda view=view: project.counted(view) == sum(truth.next_offsets.values()), f"{view} is not at the end"
        )
        truth.check(Sample.of(view, project.ask(view)))
    for sample in watcher.samples if watcher else []:
        truth.check(sample)
    assert not (watcher and watcher.errors), watcher.errors[:3]
    for view, bad in project.reader.query(
        "SELECT p.view, p.dead_letters FROM headrace_progress p JOIN headrace_views v"
        f" ON p.view = v.name AND p.version = v.serving_version WHERE p.view IN {VIEWS}"
    ).rows:
        assert bad == truth.bad(truth.next_offsets), f"{view} counted {bad} records that do not decode"
    return truth
