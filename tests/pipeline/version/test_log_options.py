"""The options with which views reach the log."""

from types import SimpleNamespace

import pytest

from headrace.pipeline.project.settings import Project
from headrace.pipeline.version.context import RunContext

SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "b"}


def log_options(tmp_path, master, worker_login="", **options):
    project = Project(
        tmp_path, "b:1", "sqlite://", str(tmp_path), master, log_options=options, worker_login=worker_login
    )
    spark = SimpleNamespace(sparkContext=SimpleNamespace(master=master))
    return RunContext(spark, project, None, None, None, "", None).log_options


@pytest.mark.parametrize(
    ("master", "worker_login", "expected"),
    [
        ("local[*]", "", "any"),
        ("local", "token", "token"),
        ("spark://m:7077", "", "token"),
        ("local-cluster[2,1,1024]", "", "token"),
        ("spark://m:7077", "any", "any"),
    ],
)
def test_workers_on_other_hosts_get_no_password_by_default(tmp_path, master, worker_login, expected):
    assert log_options(tmp_path, master, worker_login, **SASL)["workerLogin"] == expected


def test_without_sasl_workers_need_no_login(tmp_path):
    assert log_options(tmp_path, "spark://m:7077", **{"client.id": "x"}) == {
        "kafka.client.id": "x",
        "kafka.bootstrap.servers": "b:1",
    }
