"""The files of an archive, on any file system that Spark supports: uses Hadoop's interface in the driver's JVM.

The archive needs one thing of the file system: to create a file atomically, and only if it does not exist
(:meth:`ArchiveFiles.create`). File systems do that in different ways:

* On a local disk the file is written under another name, flushed, and then linked to its name. The link fails if the
  name exists.
* In an object store a file appears when it was written to its end. The store itself guarantees that only one of two
  writers succeeds (S3 since Hadoop 3.4.2; Google's and Azure's stores have long done so).
* On other file systems, such as HDFS, the file is written under another name and then renamed. The rename fails if the
  name exists.

On a local disk a file that was moved to its place is flushed to the disk before ``move`` returns. Other file systems
have done that when the file was closed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from headrace.pipeline.spark.catalyst import JavaObject

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OBJECT_STORES = ("s3a", "s3", "gs", "abfs", "abfss", "wasb", "wasbs", "oss", "cosn", "obs")


class ArchiveFiles:
    """The files of one folder. Names are relative to the folder, with slashes."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: JavaObject = spark._jvm
        self._jvm = jvm
        self._gateway: JavaObject = spark.sparkContext._gateway
        self._conf: JavaObject = spark._jsparkSession.sessionState().newHadoopConf()
        wanted = jvm.org.apache.hadoop.fs.Path(path)
        self._system: JavaObject = wanted.getFileSystem(self._conf)
        self._root: JavaObject = self._system.makeQualified(wanted)
        self._scheme = str(self._root.toUri().getScheme())
        self._local = Path(str(self._root.toUri().getPath())) if self._scheme == "file" else None

    def __str__(self) -> str:
        return str(self._local or self._root.toString())

    def full(self, name: str) -> str:
        """The full path, for Spark's readers and writers."""
        return str(self._path(name).toString())

    def _path(self, name: str) -> JavaObject:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name)

    def listing(self, name: str) -> list[str]:
        """The names in a folder, sorted; empty if the folder does not exist."""
        folder = self._path(name)
        if not self._system.exists(folder):
            return []
        return sorted(str(one.getPath().getName()) for one in self._system.listStatus(folder))

    def below(self, name: str) -> list[str]:
        """All files in a folder and its subfolders.

        Uses ``listStatus``: ``listFiles`` fails if another process deletes a file meanwhile.
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
        """Creates the file atomically; False if it exists."""
        if self._local is not None:
            return _create_local(self._local / name, text)
        if self._scheme in _OBJECT_STORES:
            return self._written(name, text)
        aside = f"{name.rpartition('/')[0]}/.{uuid4().hex}"
        self._written(aside, text)
        return self.rename_new(aside, name)

    def rename_new(self, source: str, target: str) -> bool:
        """Renames a file, unless the target exists; atomically if the file system can."""
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
            raise OSError(f"cannot move {self.full(source)} to {self.full(target)}")
        if self._local is not None:
            _flush(self._local / target)
            _flush((self._local / target).parent)

    def delete(self, name: str) -> None:
        """Deletes a file, or a folder with its content, if it exists."""
        self._system.delete(self._path(name), True)


class _JavaErrors:
    """Catches an exception of the JVM, so that its class can be checked."""

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
