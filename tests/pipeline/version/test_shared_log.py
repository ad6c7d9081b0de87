"""Versions that read the same topics ask the log once."""

from __future__ import annotations

import json
import threading

import pytest

from headrace import Admin, Producer, TopicPartition
from headrace.client.errors import KafkaTimeout
from headrace.pipeline.progress.ranges import OffsetRange
from headrace.pipeline.spark.source.options import SourceOptions
from headrace.pipeline.spark.source.range_reader import COLUMNS
from headrace.pipeline.version import shared_log
from headrace.pipeline.version.shared_log import SharedLogs
from headrace.testing import ManualClock

TOPIC = "shared"
FIRST, SECOND = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


class Log:
    """A topic of two partitions, and the shared logs over it."""

    def __init__(self, bootstrap: str) -> None:
        self.clock, self.logs = ManualClock(), SharedLogs()
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC}
        self.options = SourceOptions.parse(options, is_stream=False)
        self._producer = Producer(bootstrap_servers=bootstrap)

    def open(self):
        return self.logs.open(self.options, COLUMNS, self.clock)

    def send(self, number: int) -> None:
        for one in range(number):
            self._producer.send(TOPIC, json.dumps(one).encode(), partition=one % 2)
        self._producer.flush()

    def close(self) -> None:
        self._producer.close()


@pytest.fixture
def log(kafka):
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.create_topic(TOPIC, num_partitions=2)
        made = Log(kafka.bootstrap_servers)
        yield made
        made.close()
        admin.delete_topic(TOPIC)


def test_an_answer_is_given_once_to_each_version_and_only_while_it_is_new(log):
    shared = log.open()
    assert log.open() is shared
    assert shared.partitions("a") == [FIRST, SECOND]
    assert shared.latest("a", [FIRST, SECOND])[0] == {FIRST: 0, SECOND: 0}
    log.send(4)
    assert shared.latest("b", [FIRST, SECOND])[0] == {FIRST: 0, SECOND: 0}, "the answer that a got"
    assert shared.latest("a", [FIRST, SECOND])[0] == {FIRST: 2, SECOND: 2}, "a asks again"
    log.send(4)
    log.clock.advance(shared_log._ENDS_AGE_MS + 1)
    ends, asked_ms = shared.latest("c", [FIRST, SECOND])
    assert ends == {FIRST: 4, SECOND: 4}
    assert asked_ms == log.clock.wall_ms()
    log.logs.close(shared)
    assert log.open() is shared, "one version still uses it"
    for _ in range(2):
        log.logs.close(shared)
    assert log.open() is not shared


def test_records_are_read_once_and_versions_that_are_behind_read_by_themselves(log, monkeypatch):
    shared = log.open()
    log.send(20)
    ranges = [OffsetRange(TOPIC, 0, 0, 6), OffsetRange(TOPIC, 1, 0, 10)]
    found = shared.records(ranges)
    assert sum(batch.num_rows for batch in found) == 16
    assert shared.records(list(ranges)) is found
    assert shared.records([OffsetRange(TOPIC, 0, 2, 6)]) is None, "it does not follow"
    more = shared.records([OffsetRange(TOPIC, 0, 6, 8)])
    assert [value for batch in more for value in batch.column("offset").to_pylist()] == [6, 7]
    log.clock.advance(shared_log._UNUSED_MS + 1)
    assert shared.records([OffsetRange(TOPIC, 0, 2, 4)]) is not None, "nobody else uses the consumer"
    monkeypatch.setattr(shared_log, "_MAX_OFFSETS", 3)
    assert shared.records([OffsetRange(TOPIC, 0, 4, 8)]) is None, "too many"
    monkeypatch.setattr(shared_log, "_MAX_BYTES", 1)
    assert shared.records([OffsetRange(TOPIC, 0, 4, 6)]) is None, "too large"
    log.logs.close(shared)


def test_a_failure_is_for_those_that_waited_for_it(log, monkeypatch):
    shared = log.open()
    may_fail, calls = threading.Event(), []

    def latest(_partitions):
        calls.append(len(calls))
        assert may_fail.wait(60)
        if len(calls) == 1:
            raise KafkaTimeout("no answer")
        return {FIRST: 7}

    monkeypatch.setattr(shared._log, "latest", latest)
    outcomes: list[object] = []

    def ask(name: str) -> None:
        try:
            outcomes.append(shared.latest(name, [FIRST])[0])
        except KafkaTimeout as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=ask, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    may_fail.set()
    for thread in threads:
        thread.join()
    log.clock.advance(1)
    assert shared.latest("a", [FIRST])[0] == {FIRST: 7}
    assert "no answer" in outcomes
    assert len(calls) + outcomes.count("no answer") >= 3, "each got an answer of the log, or the shared failure"
    log.logs.close(shared)


def test_a_log_that_was_forgotten_is_opened_anew(log):
    shared = log.open()
    log.logs.forget(shared)
    another = log.open()
    assert another is not shared
    log.logs.close(shared)
    assert log.open() is another
