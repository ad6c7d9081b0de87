"""The settings of a project's Spark session, and what is sent to other machines. Spark is not started here."""

import os
import re
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

from headrace.client.security.options import SecurityOptions
from headrace.pipeline.project.settings import Project
from headrace.pipeline.spark.java_process import exit_code_text
from headrace.pipeline.spark.session import HAS_PACKAGE, errors_to, is_local, package_archive, session_conf


def project(folder: Path, **conf: str) -> Project:
    return Project(folder, "127.0.0.1:9092", "sqlite:///x.db", "archive", "local[*]", spark_conf=conf)


@pytest.mark.parametrize(
    ("master", "partitions"),
    [("local", "1"), ("local[3]", "3"), ("local[3,2]", "3"), ("local[*]", str(os.cpu_count()))],
)
def test_one_machine_has_as_many_shuffle_partitions_as_cores(tmp_path, master, partitions):
    conf = session_conf(project(tmp_path), master)
    assert (conf["spark.sql.shuffle.partitions"], conf["spark.driver.host"]) == (partitions, "127.0.0.1")


def test_a_cluster_is_reachable_and_sized_by_spark(tmp_path):
    conf = session_conf(project(tmp_path), "spark://master:7077")
    assert "spark.driver.host" not in conf
    assert "spark.sql.shuffle.partitions" not in conf


def test_the_project_wins_except_for_the_time_zone(tmp_path):
    given = {"spark.ui.enabled": "true", "spark.sql.session.timeZone": "Europe/Berlin", "spark.x": "y"}
    conf = session_conf(project(tmp_path, **given), "local[1]")
    assert (conf["spark.ui.enabled"], conf["spark.x"], conf["spark.sql.session.timeZone"]) == ("true", "y", "UTC")


def test_a_session_that_checks_queries_knows_the_master_of_the_views(tmp_path):
    on_cluster = replace(project(tmp_path), spark_master="spark://master:7077")
    name = "spark.headrace.viewsMaster"
    assert session_conf(on_cluster, "local[1]", is_short=True)[name] == "spark://master:7077"
    assert session_conf(on_cluster, "local[2]")[name] == "local[2]"  # headrace views run --master


def with_memory(folder: Path, memory: str, **conf: str) -> Project:
    return replace(project(folder, **conf), spark_memory=memory)


def test_the_heap_is_the_projects_or_fits_the_machine(tmp_path, monkeypatch):
    monkeypatch.delenv("SPARK_DRIVER_MEMORY", raising=False)
    monkeypatch.setattr("headrace.pipeline.spark.session.chosen_heap", lambda: "6144m")
    name = "spark.driver.memory"
    assert session_conf(project(tmp_path), "local[1]")[name] == "6144m"
    assert session_conf(with_memory(tmp_path, "4g"), "local[1]")[name] == "4g"
    assert session_conf(with_memory(tmp_path, "4g", **{name: "3g"}), "local[1]")[name] == "3g"
    assert session_conf(with_memory(tmp_path, "4g"), "local[1]", is_short=True)[name] == "4g"
    assert name not in session_conf(project(tmp_path), "local[1]", is_short=True)
    monkeypatch.setenv("SPARK_DRIVER_MEMORY", "2g")
    assert name not in session_conf(project(tmp_path), "local[1]")


def test_a_short_session_reserves_as_much_memory_for_compiled_code_as_java_does_by_default(tmp_path):
    options = session_conf(project(tmp_path), "local[1]", is_short=True)["spark.driver.extraJavaOptions"].split()

    def reserved(*flags):
        flags = ["java", *flags, "-XX:+PrintFlagsFinal", "-version"]
        lines = subprocess.run(flags, capture_output=True, text=True, check=True).stdout.splitlines()
        (line,) = [line for line in lines if "ReservedCodeCacheSize" in line]
        return int(line.split()[3])

    assert reserved(*(option for option in options if "Tiered" in option or "CodeCache" in option)) >= reserved()


def test_java_ends_without_memory_unless_the_project_says_otherwise(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # without an archive of classes
    name = "spark.driver.extraJavaOptions"
    assert session_conf(project(tmp_path), "local[1]")[name] == "-XX:+ExitOnOutOfMemoryError"
    given = "-Dx=y -XX:-ExitOnOutOfMemoryError"
    assert session_conf(project(tmp_path, **{name: given}), "local[1]")[name].endswith(f" {given}")


@pytest.mark.parametrize(
    ("master", "is_it"), [("local", True), ("local[2]", True), ("local-cluster[1,1,1024]", False), ("yarn", False)]
)
def test_where_tasks_run(master, is_it):
    assert is_local(master) is is_it


def test_a_worker_without_the_package_can_use_ours(tmp_path):
    archive = package_archive(tmp_path)
    code = f"{HAS_PACKAGE}\nprint(has_package(0)); print(__import__('headrace').__file__)"
    environment = {**os.environ, "PYTHONPATH": archive}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    version, file = done.stdout.splitlines()
    assert version == "0.1.0"
    assert file.startswith(archive)


def test_a_worker_without_the_package_says_so():
    code = f"import sys; sys.modules['headrace'] = None\n{HAS_PACKAGE}\nprint(has_package(0))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "headrace" in done.stdout
    assert "0.1.0" not in done.stdout


def test_what_spark_says_goes_to_a_file(tmp_path, capfd):
    log = tmp_path / ".headrace" / "spark.log"
    with errors_to(log):
        child = subprocess.Popen(["sh", "-c", "read go; echo noise >&2"], stdin=subprocess.PIPE)
    print("ours", file=sys.stderr, flush=True)  # noqa: T201
    child.communicate(b"go\n")
    assert log.read_text() == "noise\n"
    assert capfd.readouterr().err == "ours\n"


def test_a_large_log_makes_room(tmp_path, monkeypatch):
    monkeypatch.setattr("headrace.pipeline.spark.session._LARGE_LOG_BYTES", 3)
    log = tmp_path / "spark.log"
    log.write_text("long")
    with errors_to(log):
        os.write(2, b"new")
    assert (log.read_text(), (tmp_path / "spark.old.log").read_text()) == ("new", "long")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (3, "out of heap memory, exit code 3"),
        (52, "out of heap memory, exit code 52"),
        (-9, "killed with SIGKILL, by a user or by the operating system for lack of memory"),
        (-6, "ended by SIGABRT"),
        (1, "exit code 1"),
    ],
)
def test_how_a_java_process_ended(code, words):
    assert exit_code_text(code) == words


def test_spark_hides_all_secret_options(tmp_path):
    """Spark shows plans and settings in its log, its events and its web pages."""
    hidden = re.compile(session_conf(project(tmp_path), "local[2]")["spark.redaction.regex"])
    certificates = {"ssl.truststore.certificates", "ssl.keystore.certificate.chain"}  # everybody may see them
    secrets = {
        field.name.replace("_", ".") for field in fields(SecurityOptions) if field.metadata.get("is_secret")
    } - certificates
    assert {"sasl.jaas.config", "ssl.keystore.key", "sasl.password"} <= secrets
    for name in secrets:
        assert hidden.search(f"kafka.{name}"), name
