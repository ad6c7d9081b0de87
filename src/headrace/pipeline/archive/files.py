"""The folder of an archive, on whatever file system Spark writes to: Hadoop's interface, called in the driver's JVM.

What an archive needs of it is one thing: that a file comes into being whole, and only if it was not there
(:meth:`ArchiveFiles.create`). File systems do that in different ways:

* on this machine's disk: written aside, flushed, then linked to its name, which fails if the name is taken;
* in an object store a file is there when it was written to its end. That two writers do not both succeed is the
  store's own promise (S3 since Hadoop 3.4.2, Google's and Azure's for long);
* elsewhere, HDFS first of all: written aside, then renamed, which fails if the name is taken.

A file that is moved to its place is on the disk before that is told to anyone (elsewhere than on a local disk, whoever
closed it has seen to that).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from headrace.pipeline.spark.catalyst import Java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OBJECT_STORES = ("s3a", "s3", "gs", "abfs", "abfss", "wasb", "wasbs", "oss", "cosn", "obs")


class ArchiveFiles:
    """Names are relative to the folder, with slashes."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Java = spark._jvm
        self._jvm = jvm
        self._gateway: Java = spark.sparkContext._gateway
        self._conf: Java = spark._jsparkSession.sessionState().newHadoopConf()
        wanted = jvm.org.apache.hadoop.fs.Path(path)
        self._system: Java = wanted.getFileSystem(self._conf)
        self._root: Java = self._system.makeQualified(wanted)
        self._scheme = str(self._root.toUri().getScheme())
        self._local = Path(str(self._root.toUri().getPath())) if self._scheme == "file" else None

    def __str__(self) -> str:
        return str(self._local or self._root.toString())

    def full(self, name: str) -> str:
        """As Spark's readers and writers want it."""
        return str(self._path(name).toString())

    def _path(self, name: str) -> Java:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name)

    def listing(self, name: str) -> list[str]:
        """What is in a folder, sorted; nothing if there is none."""
        folder = self._path(name)
        if not self._system.exists(folder):
            return []
        return sorted(str(one.getPath().getName()) for one in self._system.listStatus(folder))

    def below(self, name: str) -> list[str]:
        """All files in a folder and its folders.

        By ``listStatus``: ``listFiles`` fails where another process deletes a file meanwhile, as a sweep does.
        """
        found: list[str] = []
        folders = [name]
        while folders:
            folder = folders.pop()
            path = self._path(folder)
            for one in self._system.listStatus(path) if self._system.exists(path) else ():
                (folders if one.isDirectory() else found).append(f"{folder}/{one.getPath().getName()}")
        return sorted(found)

    def read(self, name: str) -> str:
        stream = self._system.open(self._path(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def create(self, name: str, text: str) -> bool:
        """Makes the file, whole; or says that there is one."""
        if self._local is not None:
            return _create_local(self._local / name, text)
        if self._scheme in _OBJECT_STORES:
            return self._written(name, text)
        aside = f"{name.rpartition('/')[0]}/.{uuid4().hex}"
        self._written(aside, text)
        return self.rename_new(aside, name)

    def rename_new(self, source: str, target: str) -> bool:
        """Unless there is a target; in one step where the file system knows how."""
        if self._system.exists(self._path(target)):
            self.delete(source)
            return False
        context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(self._root.toUri(), self._conf)
        rename = getattr(self._jvm.org.apache.hadoop.fs, "Options$Rename")
        options = self._gateway.new_array(rename, 1)
        options[0] = rename.NONE
        with _JavaErrors() as errors:
            context.rename(self._path(source), self._path(target), options)
            return True
        if "FileAlreadyExists" not in errors.kind:
            raise errors.caught
        self.delete(source)
        return False

    def _written(self, name: str, text: str) -> bool:
        with _JavaErrors() as errors:
            stream = self._system.create(self._path(name), False)
            stream.write(bytearray(text.encode()))
            stream.close()
            return True
        if "FileAlreadyExists" not in errors.kind and "412" not in str(errors.caught):
            raise errors.caught
        return False

    def move(self, source: str, target: str) -> None:
        self._system.mkdirs(self._path(target.rpartition("/")[0]))
        if not self._system.rename(self._path(source), self._path(target)):
            raise OSError(f"{self.full(source)} could not be moved to {self.full(target)}")
        if self._local is not None:
            _flush(self._local / target)
            _flush((self._local / target).parent)

    def delete(self, name: str) -> None:
        """With all that is in it; nothing if it is not there."""
        self._system.delete(self._path(name), True)


class _JavaErrors:
    """Keeps an exception of the JVM, so that it can be looked at by class."""

    caught: Exception
    kind: str

    def __enter__(self) -> _JavaErrors:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

        if not isinstance(error, Py4JJavaError):
            return False
        self.caught, self.kind = error, str(error.java_exception.getClass().getName())
        return True


def _create_local(path: Path, text: str) -> bool:
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{uuid4().hex}")
    aside.write_text(text, encoding="utf-8")
    _flush(aside)
    try:
        os.link(aside, path)
    except FileExistsError:
        return False
    finally:
        aside.unlink()
    _flush(path.parent)
    return True


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
