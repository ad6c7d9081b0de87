"""The archive of Spark's classes: when Java uses it, and that a recorded archive has them."""

import fcntl
import os
import re
import subprocess
import sys
import time

import pytest

from headrace.pipeline.spark.class_archive import (
    archive_options,
    archive_path,
    record,
    record_in_background,
    remove_unused,
)

_RECORDS = """
from headrace.pipeline.spark.class_archive import archive_path, record
assert record(archive_path())
"""
_USES_SPARK = """
import sys
from pathlib import Path
from headrace.pipeline.project.settings import Project
from headrace.pipeline.spark.session import open_session

folder = Path(sys.argv[1])
conf = {"spark.driver.extraJavaOptions": f"-Xlog:class+load:file={folder}/classes.log"}
project = Project(folder, "127.0.0.1:1", "sqlite:///views.db", str(folder), "local[1]", str(folder), spark_conf=conf)
open_session(project, is_short=True).range(3).count()
"""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache folder for this test, in a folder that is not there yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "headrace"


@pytest.fixture
def archive(cache):
    cache.mkdir(mode=0o700, parents=True)
    path = archive_path()
    path.write_bytes(b"")
    path.chmod(0o600)
    return path


def test_without_an_archive_java_starts_as_always():
    assert archive_options() == []


def test_an_archive_is_used(archive):
    assert f"-XX:SharedArchiveFile={archive}" in archive_options()


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_an_archive_that_others_can_write_is_not_used(archive, mode):
    archive.chmod(mode)
    assert archive_options() == []


def test_an_archive_in_a_folder_that_others_can_write_is_not_used(archive):
    archive.parent.chmod(0o777)
    assert archive_options() == []


def test_another_java_has_another_archive(tmp_path, monkeypatch):
    before = archive_path()
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    assert archive_path() != before
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", "")
    assert archive_path() is None
    assert record_in_background() is None


def test_a_small_machine_records_no_archive(monkeypatch):
    monkeypatch.setattr("headrace.pipeline.spark.class_archive.machine_memory_bytes", lambda: 2 << 30)
    assert record_in_background() is None


def test_an_archive_is_recorded_once(archive):
    assert record_in_background() is None
    assert not record(archive)
    assert archive.read_bytes() == b""


def test_two_processes_do_not_record_at_the_same_time(cache):
    cache.mkdir(parents=True)
    path = archive_path()
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not record(path)
    assert not path.exists()


@pytest.mark.timeout(120)
def test_java_that_records_in_the_background_has_the_lowest_priority(cache, tmp_path, monkeypatch):
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\nnice > {tmp_path}/priority\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    recorder = record_in_background()
    assert recorder is not None
    with recorder:
        assert recorder.wait() != 0, "there is no archive of a Java that does not start"
    assert (tmp_path / "priority").read_text() == "19\n"
    assert sorted(cache.iterdir()) == [archive_path().with_suffix(".lock")]


def test_archives_that_nobody_uses_are_removed(cache):
    cache.mkdir(parents=True)
    old, recent = cache / "spark-classes-0.jsa", cache / "spark-classes-recent.jsa"
    for other, days in ((old, 31), (recent, 29)):
        other.write_bytes(b"")
        os.utime(other, times=(time.time() - days * 24 * 3600,) * 2)
    remove_unused(cache / "spark-classes-new.jsa")
    assert list(cache.iterdir()) == [recent]


@pytest.fixture
def recorded(monkeypatch):
    """The user's archive, which script/test has recorded for all tests."""
    monkeypatch.undo()
    if not archive_path().exists():
        # With the priority of the tests: a process with the lowest priority may wait for minutes beside them.
        subprocess.run([sys.executable, "-c", _RECORDS], check=True, timeout=250, capture_output=True)
    return archive_path()


@pytest.mark.timeout(400)
@pytest.mark.xdist_group("views-0")
def test_java_loads_most_classes_from_a_recorded_archive(recorded, tmp_path):
    assert recorded.stat().st_size > 50_000_000
    folder = tmp_path / "project"
    folder.mkdir()
    subprocess.run([sys.executable, "-c", _USES_SPARK, str(folder)], check=True, timeout=120, capture_output=True)
    classes = (folder / "classes.log").read_text()
    archived = len(re.findall(r"source: shared objects file \(top\)", classes))
    assert archived > 5 * len(re.findall(r"source: (?:file|jar):", classes))
    assert archived > 5_000
