"""A Lambda view over a small log: its speed layer reads the log, and the first batch comes later."""

from __future__ import annotations

import pytest
from lambda_harness import FIRST, SECOND, LambdaHarness
from lambda_harness import quick as quick
from test_lambda_view import ask, batches, caught_up, running
from test_lambda_view import database as database

from headrace import Admin, TopicPartition
from headrace.pipeline.lambda_.view import LambdaView
from headrace.pipeline.progress.data_loss import DataLost
from headrace.pipeline.serving.catalog import Version, VersionEvent

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def harness(spark, kafka, database, tmp_path):
    with LambdaHarness.make(spark, kafka.bootstrap_servers, database, tmp_path) as made:
        yield made


def test_the_speed_layer_reads_a_small_log_before_the_first_batch(harness):
    harness.send(*FIRST)
    with running(harness) as view:
        caught_up(harness, view)
        harness.serve()
        assert batches(harness) == []
        assert harness.check().dead_letters == 1
        harness.send(*SECOND)
        caught_up(harness, view)
        harness.check()
    with running(harness) as view:  # as after a crash, before the first batch
        caught_up(harness, view)
        assert ask(harness, view) is None
        assert batches(harness) == [1]
        assert harness.check().events == 10
        harness.send(("home", 1000))
        caught_up(harness, view)
        harness.check()


def test_running_once_before_the_first_batch_reads_everything_and_runs_it(harness):
    harness.send(*FIRST)
    with running(harness) as view:
        caught_up(harness, view)
    harness.send(*SECOND)
    LambdaView(harness.context, restarted(harness)).run_once()
    harness.serve()
    assert batches(harness) == [1]
    assert harness.check().offsets == harness.ends()


def restarted(harness: LambdaHarness) -> Version:
    """The version, as the runner gives it to the next start."""
    for event in (VersionEvent.STOPPED, VersionEvent.RESTARTED):
        harness.context.catalog.set_state(*harness.key, event)
    return harness.context.catalog.version(*harness.key)


def test_a_log_that_has_lost_its_beginning_needs_a_batch(harness):
    harness.send(*FIRST)
    with Admin(bootstrap_servers=harness.context.project.bootstrap) as admin:
        admin.delete_records({TopicPartition(harness.topic, 0): 1}).all()
    with running(harness) as view:
        caught_up(harness, view)
        assert batches(harness) == [1]


def test_what_the_log_deletes_before_the_first_batch_is_no_silent_hole(harness):
    harness.send(*FIRST)
    with running(harness) as view:
        caught_up(harness, view)
        harness.serve()
        shown = harness.check()
        with Admin(bootstrap_servers=harness.context.project.bootstrap) as admin:
            admin.delete_records({TopicPartition(harness.topic, 0): 2}).all()
        assert "offsets 0 to 1 of" in (ask(harness, view) or "")
        assert batches(harness) == []
    assert harness.check() == shown


def test_a_topic_that_was_made_anew_before_the_first_batch_is_noticed(harness):
    harness.send(*FIRST)
    with running(harness) as view:
        caught_up(harness, view)
        harness.serve()
        shown = harness.check()
    with Admin(bootstrap_servers=harness.context.project.bootstrap) as admin:
        admin.delete_topic(harness.topic)
        admin.create_topic(harness.topic, num_partitions=2)
    for number in range(40):
        harness.producer.send(harness.topic, b"{}", partition=number % 2)
    harness.producer.flush()
    with pytest.raises(DataLost, match="was deleted and created again"):
        LambdaView(harness.context, restarted(harness)).run_once()
    assert harness.check() == shown
