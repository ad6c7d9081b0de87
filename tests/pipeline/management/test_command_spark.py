"""The session of Spark that a command starts for its checks."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from headrace.pipeline.management.command_spark import CommandSpark
from headrace.pipeline.spark.session import SparkMissing


def test_a_session_of_the_process_is_not_changed(monkeypatch, tmp_path):
    """A notebook that uses Spark itself: the checks would change its settings, and stop it."""
    active = SimpleNamespace(getActiveSession=lambda: object())
    sql = ModuleType("pyspark.sql")
    sql.SparkSession = active
    monkeypatch.setitem(sys.modules, "pyspark", ModuleType("pyspark"))
    monkeypatch.setitem(sys.modules, "pyspark.sql", sql)
    told = []
    spark = CommandSpark(SimpleNamespace(project=SimpleNamespace(folder=tmp_path)), None, told.append)
    with pytest.raises(SparkMissing, match="this process has a session of Spark"), spark.own_session():
        pass
    assert told == [], "Spark was not started"
