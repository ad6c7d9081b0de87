"""Clients of the pipeline that live for a call or two do not ask a broker which metrics it wants (KIP-714)."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from headrace import Admin, Broker
from headrace.pipeline.decoding.dead_letters import DeadLetters
from headrace.pipeline.project.definition import Decode, FileText, ViewDefinition
from headrace.pipeline.project.loading import read_project
from headrace.pipeline.project.settings import Project
from headrace.pipeline.query.project_checks import check_quickly
from headrace.pipeline.spark.options import short_client_options
from headrace.tools.views.command import main as views


@pytest.fixture
def broker():
    """A broker that asks every client for all of its metrics."""
    with Broker() as made:
        with Admin(bootstrap_servers=made.bootstrap_servers, enable_metrics_push=False) as admin:
            admin.alter_config("client_metrics", "all", {"metrics": "*", "interval.ms": "100"})
        yield made


@pytest.fixture
def project(broker, tmp_path):
    options = {"enable.metrics.push": "true"}
    return Project(tmp_path, broker.bootstrap_servers, "sqlite://", str(tmp_path), "local[2]", log_options=options)


def test_the_topics_of_a_project_are_created_and_checked(broker, tmp_path):
    for name in "abc":
        arguments = ["init", "--create-topics", "--bootstrap-server", broker.bootstrap_servers]
        assert views([*arguments, str(tmp_path / name)]) == 0
    assert len(broker.core.telemetry.instances) == 0
    for name in "abc":
        assert check_quickly(read_project(tmp_path / name)).problems == []
    assert len(broker.core.telemetry.instances) == 0


def test_the_topic_of_dead_letters(broker, project):
    """The producer of the dead letters lives long: its metrics are pushed."""
    query = FileText("pages.sql", "SELECT 1")
    view = ViewDefinition("pages", ("clicks",), "", "lambda", query, Decode(), dead_letters="dead", file=Path())
    row = {"key": None, "value": b"{", "topic": "clicks", "partition": 0, "offset": 1, "reason": "no JSON"}
    row["timestamp"] = datetime(2026, 11, 16, tzinfo=UTC)
    with DeadLetters(project, view) as dead_letters:
        assert dead_letters.send(pa.Table.from_pylist([row])) == 1
        dead_letters._producer.client_instance_id()
        assert len(broker.core.telemetry.instances) == 1


def test_the_options_of_a_short_client_have_no_options_of_consumers():
    given = {"client.id": "views", "isolation.level": "read_committed", "enable.metrics.push": "true"}
    assert short_client_options(given) == {"client.id": "views", "enable.metrics.push": "false"}
