"""Views over generated queries and records equal Spark's batch answer at every cut, in both architectures.

``script/test`` tries a few examples, always the same. ``script/soak queries [SECONDS]`` tries others until the time is
over, with both databases, and prints the seed of each round; ``HEADRACE_SEED`` repeats one. ``HEADRACE_QUERY`` limits
the examples to shapes whose name contains it.
"""

from __future__ import annotations

import os
import random
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from kept_view_harness import KeptView
from lambda_harness import quick as quick
from query_grammar import Query, cuts, logs, queries

from headrace.pipeline.serving.database import Database

SOAK_S = int(os.environ.get("HEADRACE_SOAK_QUERIES", "0"))
pytestmark = pytest.mark.timeout(900 + 2 * SOAK_S)
_SHAPE = os.environ.get("HEADRACE_QUERY", "")
_EXAMPLES, _EXAMPLES_PER_ROUND = 2, 8
#: Shrinking repeats examples of seconds hundreds of times: a failure prints its example as it is.
_ONCE = settings(
    max_examples=_EXAMPLES_PER_ROUND if SOAK_S else _EXAMPLES, deadline=None, database=None, derandomize=not SOAK_S,
    phases=[Phase.generate], suppress_health_check=list(HealthCheck), print_blob=False,
)  # fmt: skip


class Example:
    """What one example runs with."""

    def __init__(self, spark, bootstrap: str, database: Database, folder: Path) -> None:
        self._given = spark, bootstrap, database, folder
        self.count = 0

    def run(self, data: st.DataObject) -> None:
        query: Query = data.draw(queries().filter(lambda query: _SHAPE in query.shape))
        architecture = data.draw(st.sampled_from(("lambda", "kappa")))
        kind = data.draw(st.sampled_from(("table", "changes")))
        log, steps = data.draw(logs(query.tables, min_size=10)), data.draw(cuts)
        view = KeptView(*self._given, query, architecture, kind)
        self.count += 1
        if SOAK_S:
            print(f"{time.strftime('%H:%M:%S')} {architecture} {view.way}: {query.shape}", flush=True)  # noqa: T201
        try:
            for step, count in steps:
                view.write(log[:count])
                del log[:count]
                view.happens(step)
                view.check()
            view.write(log)
            view.finishes()
            view.check()
        finally:
            view.close()


@pytest.fixture
def example(spark, kafka, sqlite_url, tmp_path):
    database = Database(sqlite_url)
    yield Example(spark, kafka.bootstrap_servers, database, tmp_path)
    database.close()


def tried(run: Callable[[st.DataObject], None], number: int | None = None) -> None:
    """Runs some examples.

    :param number: the seed; None for the same examples each time.
    """

    @_ONCE
    @given(data=st.data())
    def tested(data: st.DataObject) -> None:
        run(data)

    (tested if number is None else seed(number)(tested))()


@pytest.mark.skipif(bool(SOAK_S), reason="a soak tries other examples")
def test_views_of_generated_queries_equal_the_batch_answer_at_every_cut(example):
    tried(example.run)
    assert example.count >= _EXAMPLES // 2


@pytest.mark.skipif(not SOAK_S, reason="takes as long as it is told: script/soak queries [SECONDS]")
def test_generated_queries_for_a_time(spark, kafka, database_url, tmp_path):
    given_seed = int(os.environ.get("HEADRACE_SEED", "0"))
    number = given_seed or random.SystemRandom().randrange(1, 10**6)
    ends, failures = time.monotonic() + SOAK_S / 2, []
    database = Database(database_url)
    example = Example(spark, kafka.bootstrap_servers, database, tmp_path)

    def run(data: st.DataObject) -> None:
        try:
            example.run(data)
        except Exception as error:  # noqa: BLE001  all examples are run once, then the failures are told
            text = "".join(traceback.format_exception(error))
            print(f"HEADRACE_SEED={number} failed: {text}", flush=True)  # noqa: T201
            failures.append((number, str(error)[:1000]))

    while time.monotonic() < ends:
        tried(run, number)
        number += 1
        if given_seed:
            break
    database.close()
    print(f"{example.count} examples up to seed {number - 1}", flush=True)  # noqa: T201
    assert not failures, failures
