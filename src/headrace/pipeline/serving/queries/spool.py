"""Holds large answers in temporary files while clients read them. The number of files and their bytes are bounded.

An answer goes into a file as fast as the database produces it, and the transaction ends before the first byte is sent.
So a client that reads slowly delays neither a switch of a view nor the cleaning of the database, every error has its
status code, and the pages of an answer are parts of one snapshot.

A file has no name: a crash leaves nothing behind. ``TMPDIR`` chooses the folder.
"""

from __future__ import annotations

import errno
import os
import tempfile
import threading
from io import RawIOBase
from typing import TYPE_CHECKING

from headrace.pipeline.serving.errors import AnswerTooLarge, ServerBusy

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

MAX_BYTES = 8 << 30
MAX_FILES = 256


class Spool:
    """All files of one server. Any thread may call its methods."""

    def __init__(self, max_bytes: int = MAX_BYTES, max_files: int = MAX_FILES) -> None:
        self._max_bytes, self._max_files = max_bytes, max_files
        self._lock = threading.Lock()
        self.size_bytes = 0
        self.file_count = 0

    def new_file(self) -> SpoolFile:
        """
        :raises ServerBusy: if there are too many files.
        """
        with self._lock:
            if self.file_count >= self._max_files:
                raise ServerBusy(
                    f"the server holds {self.file_count} large answers, as many as it may: try again later"
                )
            self.file_count += 1
        try:
            return SpoolFile(self)
        except OSError as error:
            self.release(0, files=1)
            raise AnswerTooLarge(f"the server cannot make a temporary file: {error.strerror}") from None

    def reserve(self, size_bytes: int) -> None:
        """
        :raises AnswerTooLarge: if the bytes of all answers would be too many.
        """
        with self._lock:
            if self.size_bytes + size_bytes > self._max_bytes:
                raise AnswerTooLarge(
                    f"the answers that the server holds would have more than {self._max_bytes} bytes: select fewer "
                    "rows or columns, or try again when other readers have read theirs"
                )
            self.size_bytes += size_bytes

    def release(self, size_bytes: int, *, files: int = 0) -> None:
        with self._lock:
            self.size_bytes -= size_bytes
            self.file_count -= files


class SpoolFile(RawIOBase):
    """A temporary file whose bytes count. It is gone when it is closed."""

    def __init__(self, spool: Spool) -> None:
        super().__init__()
        self._spool = spool
        self._file = tempfile.TemporaryFile(prefix="headrace-answer-", buffering=0)  # noqa: SIM115 - closed below
        self.size_bytes = 0

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, position: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(position, whence)

    def tell(self) -> int:
        return self._file.tell()

    def write(self, data: ReadableBuffer) -> int:
        """Appends all bytes.

        :raises AnswerTooLarge: if there is no room.
        """
        view = memoryview(data).cast("B")
        self._spool.reserve(len(view))
        self.size_bytes += len(view)
        written = 0
        try:
            while written < len(view):
                written += self._file.write(view[written:])
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            raise AnswerTooLarge(
                f"the folder of temporary files ({tempfile.gettempdir()}) is full: {error.strerror}; free some space, "
                "or set TMPDIR"
            ) from None
        return written

    def readinto(self, buffer: WriteableBuffer) -> int:
        return self._file.readinto(buffer)

    def read_at(self, position: int, count: int) -> bytes:
        """Up to ``count`` bytes. Does not move the position of other readers."""
        return os.pread(self._file.fileno(), count, position)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
            self._spool.release(self.size_bytes, files=1)
        super().close()
