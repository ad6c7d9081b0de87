"""One folder with a Delta table that is a view: writes snapshots of the view, by the library deltalake.

A snapshot takes the place of all rows, in one commit of the table: new Parquet files, then one new file in
``_delta_log``, which must not exist yet. A crash before leaves Parquet files that belong to no snapshot; ``clean``
removes them when they are older than ``keep``. A crash after leaves the new snapshot.

Each commit has ``userMetadata``: a JSON text with ``view``, ``version``, ``offsets`` and ``updated_ms``, and
``definition``, the hash of the version's definition. Version and offsets of one definition have one answer, so a
snapshot of the same three is not written again. The table itself is asked for what it has; nothing else has to be right
after a crash.

Only a table that was made for the view is written; its description says so. Somebody else may compact it (OPTIMIZE,
VACUUM). Rows that somebody else has written are replaced by the next snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa  # type: ignore[import-untyped]
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from headrace.client.errors import HeadraceError
from headrace.pipeline.export.snapshot import Snapshot

_T = TypeVar("_T")
METADATA = "userMetadata"
_LOG_RETENTION = "delta.logRetentionDuration"
_FILE_RETENTION = "delta.deletedFileRetentionDuration"
#: Operations of other programs that leave the rows as they are.
_KEEP_ROWS = ("OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES")
_COMMITS_READ = 100


class ExportRefused(HeadraceError):
    """The view cannot be exported so. The message says what to change."""


class ExportFailed(HeadraceError):
    """A snapshot could not be written. The table has the snapshot before."""


class DeltaFolder:
    """:param keep_hours: for how long replaced files stay."""

    def __init__(self, path: Path, view: str, keep_hours: int) -> None:
        self.path, self.view = path, view
        self._keep_hours = keep_hours

    def last(self) -> Snapshot | None:
        """The newest snapshot; None if the folder has no table, or somebody else has changed its rows.

        :raises ExportRefused: if the folder has something else.
        """
        check_folder(self.path)
        if not DeltaTable.is_deltatable(str(self.path)):
            return None
        return _calling(self.path, self._last)

    def _last(self) -> Snapshot | None:
        table = DeltaTable(self.path)
        if table.metadata().description != self._description:
            raise ExportRefused(
                f"{self.path} has a Delta table that was not made for the view {self.view}: export to another folder"
            )
        for commit in table.history(_COMMITS_READ):
            if METADATA in commit:
                return Snapshot(commit["version"], json.loads(commit[METADATA]))
            if commit["operation"] not in _KEEP_ROWS:
                break
        return None

    def write(
        self, schema: pa.Schema, batches: Iterator[pa.RecordBatch], names: Mapping[str, Any]
    ) -> tuple[Snapshot, int]:
        """Replaces all rows, in one commit.

        :return: the snapshot, and how many rows it has.
        :raises ExportFailed: if the commit did not happen.
        """
        # Before the first Parquet file: without it, a crash would leave a folder with files that nobody knows.
        (self.path / "_delta_log").mkdir(parents=True, exist_ok=True)
        source = _Counted(schema, batches)
        reader = pa.RecordBatchReader.from_batches(schema, source.batches())
        try:
            write_deltalake(
                self.path,
                reader,
                mode="overwrite",
                schema_mode="overwrite",
                name=self.view,
                description=self._description,
                configuration=self._properties,
                commit_properties=_named(names),
            )
        except (DeltaError, OSError) as error:
            if source.error is not None:  # the library tells it as a text
                raise source.error from None
            raise ExportFailed(f"cannot write to {self.path}: {_reason(error)}") from error
        number = _calling(self.path, lambda: DeltaTable(self.path).version())
        return Snapshot(number, names), source.rows

    def clean(self, names: Mapping[str, Any]) -> int:
        """Removes files that no snapshot of the last ``keep`` hours needs.

        :param names: those of the newest snapshot, for the commits that say so.
        :return: how many files were removed.
        """

        def clean() -> int:
            table = DeltaTable(self.path)
            has = table.metadata().configuration
            if any(has.get(name) != value for name, value in self._properties.items()):
                table.alter.set_table_properties(self._properties, commit_properties=_named(names))
            table.create_checkpoint()  # the log is cut behind a checkpoint only
            table.cleanup_metadata()
            removed = table.vacuum(
                self._keep_hours,
                dry_run=False,
                enforce_retention_duration=False,
                full=True,  # also the files of a crash
                commit_properties=_named(names),
            )
            return len(removed)

        return _calling(self.path, clean)

    @property
    def _description(self) -> str:
        """Stays in the table, and says that its rows are ours to replace."""
        return f"The view {self.view} of Headrace"

    @property
    def _properties(self) -> dict[str, str]:
        return dict.fromkeys((_LOG_RETENTION, _FILE_RETENTION), f"interval {self._keep_hours} hours")


class _Counted:
    """Counts rows, and keeps the error of who reads them."""

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self._schema, self._batches = schema, batches
        self.rows = 0
        self.error: Exception | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._batches:
                self.rows += batch.num_rows
                yield batch.cast(self._schema)
        except Exception as error:
            self.error = error
            raise


def check_folder(path: Path) -> None:
    """
    :raises ExportRefused: if the folder has files and no Delta table.
    """
    try:
        has_files = path.exists() and not (path / "_delta_log").is_dir() and any(path.iterdir())
    except OSError as error:
        raise ExportRefused(f"{path} is not a folder that can be read: {error.strerror}") from None
    if has_files:
        raise ExportRefused(f"{path} has files, and no Delta table: export to a folder of its own")


def _named(names: Mapping[str, Any]) -> CommitProperties:
    return CommitProperties(custom_metadata={METADATA: json.dumps(names)})


def _calling(path: Path, call: Callable[[], _T]) -> _T:
    try:
        return call()
    except (DeltaError, OSError) as error:
        raise ExportFailed(f"cannot use the Delta table {path}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return " ".join(str(error).split("\n")[0].split())
