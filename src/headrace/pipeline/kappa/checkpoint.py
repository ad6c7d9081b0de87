"""Reads the checkpoint that Spark keeps of a stream, and checks that it belongs to the serving database.

::

    offsets/<batch>    written before a batch runs: "v1", a line of settings, and for each source where the batch ends
    commits/<batch>    written when the batch is done

The transaction in the serving database happens between the two. So a batch that was committed in the database has a
file in ``offsets``, and a batch with a file in ``commits`` was committed in the database. If one of these does not
hold, the checkpoint or the database was deleted or restored from a backup. Continuing would skip records or count them
twice, so :func:`check_belongs_to` raises.

Files are read through Hadoop's interface, because a checkpoint may be on any file system that Spark supports.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from headrace.pipeline.progress.data_loss import DataLost
from headrace.pipeline.serving.catalog import Offsets, Progress
from headrace.pipeline.spark.catalyst import JavaObject

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_VERSION = "v1"


class WrongCheckpoint(DataLost):
    """The checkpoint and the serving database do not belong together."""


class Checkpoint:
    """:param path: an absolute path, or a URL."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.path = path
        jvm: JavaObject = spark._jvm
        self._jvm = jvm
        self._root: JavaObject = jvm.org.apache.hadoop.fs.Path(path)
        self._files: JavaObject = self._root.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())

    def offsets(self, batch_id: int) -> Offsets | None:
        """Returns the end of a batch; None if the batch was never planned, or if Spark has deleted its file."""
        text = self._read(f"offsets/{batch_id}")
        return None if text is None else parse_offset_file(text)

    def last_committed_batch(self) -> int | None:
        return max(self._batches("commits"), default=None)

    def remove(self) -> None:
        """Removes the checkpoint, if there is one."""
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
    """If several sources read the same partition, the lowest offset counts: all of them have read up to it."""
    version, _settings, *sources = text.splitlines()
    assert version == _VERSION, (
        f"Spark wrote its offsets in format {version}; this version of Headrace reads only {_VERSION}"
    )
    found: Offsets = {}
    for source in sources:
        if source.strip() == "-":  # a source that has not read anything yet
            continue
        for topic, partitions in json.loads(source).items():
            mine = found.setdefault(topic, {})
            for partition, offset in partitions.items():
                number = int(partition)
                mine[number] = min(int(offset), mine.get(number, int(offset)))
    return found


def check_belongs_to(checkpoint: Checkpoint, progress: Progress | None, label: str) -> None:
    """
    :param label: the version, for messages.
    :raises WrongCheckpoint: if the checkpoint does not belong to the data in the serving database.
    """
    done, committed = checkpoint.last_committed_batch(), -1 if progress is None else progress.batch_id
    advice = f"restore the older or missing one of the two, or drop {label} and apply its view again"
    if done is not None and done > committed:
        raise WrongCheckpoint(
            f"the serving database has {label} up to batch {committed}, but its checkpoint {checkpoint.path} says that "
            f"batch {done} was committed: the database is older than the checkpoint; {advice}"
        )
    if progress is not None and checkpoint.offsets(progress.batch_id) != progress.offsets:
        raise WrongCheckpoint(
            f"the serving database has {label} up to batch {committed}, but its checkpoint "
            f"{checkpoint.path} does not have that batch: the checkpoint was lost or is another one; {advice}"
        )
