"""The checkpoint of a stream: Spark's, in a folder of its own, of which only three things are asked here.

::

    offsets/<batch>    written before a batch runs: "v1", a line of settings, and for each source where the batch ends
    commits/<batch>    written when it is done

The serving database is written between the two. So a batch that was committed there has its file in ``offsets``, and a
batch with a file in ``commits`` was committed there. If one of them does not hold, the checkpoint or the database is
not the one that the other belongs to (deleted, or restored from a backup), and going on would leave a hole or count
something twice: :func:`check_belongs_to` refuses.

Files are read through Hadoop's interface, because a checkpoint may be on any file system that Spark knows.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from headrace.pipeline.progress.data_loss import DataLost
from headrace.pipeline.serving.catalog import Offsets, Progress
from headrace.pipeline.spark.catalyst import Java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_VERSION = "v1"


class WrongCheckpoint(DataLost):
    """The checkpoint and the serving database do not belong together."""


class Checkpoint:
    """:param path: an absolute path, or a URL."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.path = path
        jvm: Java = spark._jvm
        self._jvm = jvm
        self._root: Java = jvm.org.apache.hadoop.fs.Path(path)
        self._files: Java = self._root.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())

    def offsets(self, batch_id: int) -> Offsets | None:
        """Where a batch ends; nothing if it was never planned, or is long done and forgotten."""
        text = self._read(f"offsets/{batch_id}")
        return None if text is None else parse_offset_file(text)

    def last_planned(self) -> int | None:
        return max(self._batches("offsets"), default=None)

    def last_done(self) -> int | None:
        return max(self._batches("commits"), default=None)

    def remove(self) -> None:
        """Nothing if there is none."""
        self._files.delete(self._root, True)

    def _read(self, name: str) -> str | None:
        file = self._jvm.org.apache.hadoop.fs.Path(self._root, name)
        if not self._files.exists(file):
            return None
        stream = self._files.open(file)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def _batches(self, folder: str) -> list[int]:
        path = self._jvm.org.apache.hadoop.fs.Path(self._root, folder)
        if not self._files.exists(path):
            return []
        names = [str(status.getPath().getName()) for status in self._files.listStatus(path)]
        return [int(name) for name in names if name.isdecimal()]


def parse_offset_file(text: str) -> Offsets:
    """If several sources read the same partition, what all of them have read counts."""
    version, _settings, *sources = text.splitlines()
    assert version == _VERSION, (
        f"Spark wrote its offsets in format {version}, which this version of Headrace does not know"
    )
    found: Offsets = {}
    for source in sources:
        if source.strip() == "-":  # of a source that has nothing yet
            continue
        for topic, partitions in json.loads(source).items():
            mine = found.setdefault(topic, {})
            for partition, offset in partitions.items():
                number = int(partition)
                mine[number] = min(int(offset), mine.get(number, int(offset)))
    return found


def check_belongs_to(checkpoint: Checkpoint, progress: Progress | None, who: str) -> None:
    """
    :raises WrongCheckpoint: if the checkpoint is not the one of the data that is in the serving database.
    """
    done, committed = checkpoint.last_done(), -1 if progress is None else progress.batch_id
    advice = f"put back the one that is missing, or drop {who} and apply its view again"
    if done is not None and done > committed:
        raise WrongCheckpoint(
            f"the serving database has {who} up to batch {committed}, but its checkpoint {checkpoint.path} says that "
            f"{done} was committed: the database is older than the checkpoint; {advice}"
        )
    if progress is not None and checkpoint.offsets(progress.batch_id) != progress.offsets:
        raise WrongCheckpoint(
            f"the serving database has {who} up to batch {committed}, of which its checkpoint {checkpoint.path} knows "
            f"nothing: the checkpoint was lost or is another one; {advice}"
        )
