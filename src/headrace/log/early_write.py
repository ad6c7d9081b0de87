"""Checks a large batch and writes it behind the end of its log, on another thread, before the batch is appended.

To write a mebibyte takes a quarter of a millisecond, and as long as the disk wants if the disk is busy. The event loop
must not wait so long for a batch of many mebibytes. The steps:

1. The loop begins an early write (:func:`begin_early_write`). Nothing else is appended to the log meanwhile: callers
   that can wait, wait for the end (:meth:`EarlyWrite.call_at_end`).
2. A thread checks the batch and writes it, except for its first 16 bytes, behind the end of the active segment
   (:meth:`EarlyWrite.run`). These bytes do not count yet, and the thread changes nothing else.
3. The loop appends the batch like any other batch: it checks the role, the producer and everything else that may have
   changed meanwhile. If all is well, it writes the first 16 bytes (:meth:`EarlyWrite.complete`).

A caller that has to change the log's end before step 3 (a marker, a new leader, a stop) ends the early write first:
:meth:`EarlyWrite.end` waits for the thread and cuts off its bytes. The append then writes the batch itself.

A crash before step 3 leaves 16 zero bytes, and a batch of length 0 is no batch: recovery cuts it off. So a batch that
would have been refused in step 3 never becomes a part of the log.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING

from headrace.protocol.errors import KafkaError
from headrace.protocol.records import HEAD, Buffer

if TYPE_CHECKING:
    from headrace.log.partition_log import PartitionLog
    from headrace.log.segment import Segment

#: A larger batch is written early. By default, no topic accepts a larger batch.
LARGE_BATCH_BYTES = 1024 * 1024


def begin_early_write(log: PartitionLog, batch: Buffer) -> EarlyWrite:
    """Begins an early write to a log that has none. If the batch does not fit into the active segment, the next segment
    begins.

    :raises StorageError: if the log is closed or cannot be used.
    """
    assert log.early_write is None, f"{log} has an early write already"
    if log.is_closed or log.log_dir.error is not None:
        raise log.unusable()
    try:
        segment = log.active
        if segment.offset_index is None:
            segment.load()
        if segment.size_bytes and segment.size_bytes + len(batch) > log.config.segment_bytes >= len(batch):
            log.roll()
        log.early_write = EarlyWrite(log, batch)
    except OSError as error:
        raise log.log_dir.take_offline(error) from error
    return log.early_write


class EarlyWrite:
    """One batch of a client that is written before it is appended."""

    __slots__ = (
        "_at_end", "_error", "_file", "_has_written", "_is_ended", "_lock", "_log", "_position", "_segment",
        "_size_bytes", "batch", "checked",
    )  # fmt: skip

    def __init__(self, log: PartitionLog, batch: Buffer) -> None:
        #: The batch as the client sent it.
        self.batch = batch
        #: The batch as the topic's settings want it, or what is wrong with it; None until the thread has checked it.
        self.checked: Buffer | KafkaError | None = None
        self._log = log
        self._segment = log.active
        self._position = log.active.size_bytes
        self._file = log.active.file()
        #: Held by the thread while it writes.
        self._lock = Lock()
        self._is_ended = False
        #: Whether bytes may be behind the end of the log, the size of their batch, and the error of the write.
        self._has_written = False
        self._size_bytes = 0
        self._error: OSError | None = None
        self._at_end: list[Callable[[], object]] = []

    def run(self, check: Callable[[], Buffer | KafkaError]) -> None:
        """Checks and writes the batch. May run on any thread."""
        checked = check()
        if not isinstance(checked, KafkaError):
            self._write(memoryview(checked)[HEAD.size :])
        self.checked = checked

    def _write(self, rest: memoryview) -> None:
        with self._lock:
            if self._is_ended:
                return
            self._has_written, self._size_bytes = True, HEAD.size + len(rest)
            try:
                self._log.log_dir.disk.write(self._file.fd, (rest,), self._position + HEAD.size, len(rest))
            except OSError as error:
                self._error = error

    # -- on the thread of the event loop

    def call_at_end(self, callback: Callable[[], object]) -> None:
        """Calls a function when the log can be appended to again."""
        self._at_end.append(callback)

    def complete(self, segment: Segment, head: bytes, view: memoryview, size_bytes: int) -> None:
        """Makes the bytes of the thread a batch: writes the head, or the whole batch if the thread has not written it.

        :raises OSError: if one of the writes has failed. Then nothing is behind the end of the segment.
        """
        if not self._has_written:
            self.end()
            segment.write([head, view[HEAD.size :]], size_bytes)
            return
        assert segment is self._segment, f"{segment} is not the segment of the early write"
        assert segment.size_bytes == self._position, f"{segment} has grown since the early write"
        assert size_bytes == self._size_bytes, f"the thread has written {self._size_bytes} bytes, not {size_bytes}"
        if self._error is not None:
            error = self._error
            self.end()
            raise error
        segment.write([head], HEAD.size)
        self._finish()

    def end(self, *, cuts_file: bool = True) -> None:
        """Ends the early write without a batch, unless it is complete. Waits until the thread does not write any more.

        :raises OSError: if the bytes of the thread cannot be cut off.
        """
        if self._is_ended:
            return
        with self._lock:
            self._finish()
        if self._has_written and cuts_file and self._log.log_dir.error is None:
            self._log.log_dir.disk.truncate(self._file.fd, self._position)

    def give_up(self) -> None:
        """Ends the early write, unless it is complete. An error takes the log's dir offline."""
        try:
            self.end()
        except OSError as error:
            self._log.log_dir.take_offline(error)

    def _finish(self) -> None:
        self._is_ended = True
        self._log.early_write = None
        callbacks, self._at_end = self._at_end, []
        for callback in callbacks:
            callback()
