"""Lets Java processes of Spark start from an archive of the classes that Spark needs (class data sharing).

Before the first answer of a view, a Java process reads, checks and links more than ten thousand classes. An archive has
them in the form that Java keeps in memory. ``docs/performance.md`` says what that saves.

A Java process that records an archive is slow. So a process of its own does it, once per machine and with the lowest
priority: ``headrace views run`` starts it (``python -m headrace.pipeline.spark.class_archive``) when the views have run
for a while. Until it has ended, Java starts without an archive.

The archive (180 MB) is in the cache folder of the user. Java loads code from it, so it is used only if nobody else can
write it. Its name has a hash of the Java and of the Spark that it belongs to. Java compares both once more, and
starts without the archive if they differ. But Java does not check whether the file is whole, and dies of a file that is
not: so an archive gets its name when it is on the disk.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from hashlib import sha256
from importlib.util import find_spec
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.pipeline.spark.heap import machine_memory_bytes

if TYPE_CHECKING:
    from pyarrow import RecordBatch  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession

logger = getLogger("headrace.views")

#: Java warns of classes that an archive cannot have, and of an archive that does not fit. Both are no problem. It would
#: print warnings to standard output, which belongs to the command.
_QUIET = "-Xlog:disable -Xlog:all=warning,cds*=off:stderr"
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_LOWEST_PRIORITY = 19
_RECORD_TIMEOUT_S = 300
#: A second Java process beside that of the views needs 0.7 GB for half a minute.
_ENOUGH_MEMORY_BYTES = 4 << 30
_UNUSED_AFTER_S = 30 * 24 * 3600


def archive_path() -> Path | None:
    """Returns the path of the archive for the installed Java and Spark; None if one of the two is not found."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java")
    spark = os.environ.get("SPARK_HOME") or _pyspark()
    if java is None or spark is None:
        return None
    parts = [_identity(Path(java).resolve()), _identity(Path(spark, "jars").resolve())]
    name = sha256("\n".join(parts).encode()).hexdigest()[:16]
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache, "headrace", f"spark-classes-{name}.jsa")


def _pyspark() -> str | None:
    found = find_spec("pyspark")
    return None if found is None or found.origin is None else str(Path(found.origin).parent)


def _identity(path: Path) -> str:
    try:
        found = path.stat()
    except OSError:
        return f"{path}"
    return f"{path} {found.st_size} {found.st_mtime_ns}"


def archive_options() -> list[str]:
    """The options with which Java uses the archive; none if there is no archive that can be trusted."""
    path = archive_path()
    if path is None or " " in str(path) or not (_is_private(path) and _is_private(path.parent)):
        return []
    return [f"-XX:SharedArchiveFile={path}", "-Xshare:auto", _QUIET]


def _is_private(path: Path) -> bool:
    """Whether the file or folder exists and only this user can write it."""
    try:
        found = path.stat()
    except OSError:
        return False
    return found.st_uid == os.getuid() and not found.st_mode & _OTHERS_MAY_WRITE


def record_in_background() -> subprocess.Popen[bytes] | None:
    """Starts a process that records the archive, if there is none. The process outlives this one.

    :returns: the process; None if there is an archive, or no Java, or little memory.
    """
    path = archive_path()
    if path is None or path.exists() or machine_memory_bytes() < _ENOUGH_MEMORY_BYTES:
        return None
    command = [sys.executable, "-m", __name__]
    nothing = subprocess.DEVNULL
    try:
        return subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)
    except OSError as error:
        logger.debug("no archive of Spark's classes is recorded: %s", error)
        return None


def record(path: Path) -> bool:
    """Records an archive, and removes those that were not used for a month.

    :returns: whether this process recorded it: another process may have done it, or may be doing it.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        if path.exists():
            return False
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            recorded = Path(folder, "recorded.jsa")
            if _run_spark(f"-XX:ArchiveClassesAtExit={recorded} {_QUIET}", folder) != 0 or not recorded.exists():
                return False
            recorded.chmod(0o600)
            with recorded.open("rb") as file:
                os.fsync(file.fileno())
            recorded.replace(path)
        remove_unused(path)
    return True


def remove_unused(path: Path) -> None:
    """Removes the archives in this archive's folder that were not used for a month."""
    for other in path.parent.glob("spark-classes-*"):
        if other.suffix != ".lock" and time.time() - other.stat().st_atime > _UNUSED_AFTER_S:
            other.unlink()


def _run_spark(java_options: str, folder: str) -> int:
    """Runs what views run, in a small session; returns the exit code of its Java process."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYSPARK_SUBMIT_ARGS"] = f'--driver-java-options "{java_options}" pyspark-shell'
    from pyspark.sql import SparkSession

    from headrace.pipeline.spark.session import java_of

    builder = SparkSession.builder.master("local[1]").appName("headrace class archive")
    conf = {
        "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", "spark.log.level": "ERROR",
        "spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "1", "spark.sql.warehouse.dir": folder,
        "spark.ui.enabled": "false",
    }  # fmt: skip
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    java = java_of(spark)
    assert java is not None, "this process has started Java"
    _use(spark, folder)
    spark.stop()
    assert java.stdin is not None
    java.stdin.close()  # the Java process ends when its standard input does
    return java.wait(_RECORD_TIMEOUT_S)


def _use(spark: SparkSession, folder: str) -> None:
    """Loads the classes of typical views: JSON, groups, joins, Arrow, and a stream."""
    texts = spark.range(100).selectExpr("to_json(struct(id % 7 AS k, id AS v, timestamp_seconds(id) AS at)) AS value")
    rows = texts.selectExpr("from_json(value, 'k BIGINT, v BIGINT, at TIMESTAMP') AS row").select("row.*")
    rows.createOrReplaceTempView("rows")
    groups = spark.sql("SELECT k, count(*) AS n, sum(v) AS v, max(v) AS most, max(at) AS at FROM rows GROUP BY k")
    joined = groups.join(rows.select("k"), "k").mapInArrow(_same, "k BIGINT, n BIGINT").persist()
    joined.toArrow()
    joined.unpersist()
    texts.write.text(f"{folder}/texts")
    stream = spark.readStream.text(f"{folder}/texts").groupBy("value").count()
    query = (
        stream.writeStream.outputMode("update").foreachBatch(_count).option("checkpointLocation", f"{folder}/stream")
    )
    query.trigger(availableNow=True).start().awaitTermination(60)


def _same(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
    for batch in batches:
        yield batch.select(["k", "n"])


def _count(frame: DataFrame, _batch: int) -> None:
    frame.count()


def main() -> None:
    path = archive_path()
    if path is not None:
        os.nice(_LOWEST_PRIORITY)
        record(path)


if __name__ == "__main__":
    main()
