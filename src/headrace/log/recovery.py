"""Loads the log of a partition from its folder, and recovers the log after a crash.

After a clean stop the names of the files are enough: they give the segments, and the producer snapshot that the stop
wrote gives the end offset.

After a crash, nothing above the recovery point is trusted. The segments from there on are read batch by batch (header,
crc, rising offsets), and their indexes are rebuilt. The first wrong batch cuts the log: its file is truncated there,
and later segments are dropped. Leader epochs and producer snapshots beyond the new end are dropped too. Segments below
the recovery point are on disk. If one of their indexes is missing or damaged, its first use rebuilds it.

Files that interrupted work has left are removed: ``.deleted``, ``.cleaned``, ``.tmp``, indexes without a log, and
snapshots at whose offset no segment begins (except the newest). ``.swap`` files are put in place
(``segment_swap.py``).
"""

from logging import getLogger

from headrace.crc import crc32c
from headrace.log import lookups, segment_swap, snapshots
from headrace.log.appending import note_producer
from headrace.log.config import LogConfig
from headrace.log.control_marker import end_transaction
from headrace.log.log_dir import LogDir
from headrace.log.partition_log import PartitionLog
from headrace.log.producer_state import ProducerStates
from headrace.log.retention import discard
from headrace.log.segment import CLEANED, DELETED, LOG, SWAP, Segment
from headrace.log.truncation import truncate_fully
from headrace.protocol.errors import InvalidRecord
from headrace.protocol.records import CRC_STARTS_AT, HEADER_BYTES, MAGIC, BatchHeader, read_header

logger = getLogger(__name__)

_WINDOW_BYTES = 1 << 20
_TMP = ".tmp"


class _Folder:
    """The files of a partition's folder, by kind."""

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}
        self.snapshots: list[int] = []
        #: The names of files that interrupted work has left.
        self.leftovers: set[str] = set()
        self.indexes: list[str] = []


def load_log(
    log_dir: LogDir,
    topic: str,
    partition: int,
    config: LogConfig,
    *,
    is_clean: bool,
    recovery_point: int = 0,
    log_start_offset: int = 0,
) -> PartitionLog:
    """Loads a log; an empty one if the folder has no segment.

    :param is_clean: whether the last stop of the log dir was clean; otherwise the log is recovered.
    :raises OSError: if a file operation fails.
    """
    folder = log_dir.folder_of(topic, partition)
    found = _list_files(log_dir, folder)
    if found.leftovers:
        _remove_leftovers(log_dir, folder, found.leftovers)
        found = _list_files(log_dir, folder)
    _drop_orphans(log_dir, folder, found)
    is_new = not found.sizes
    if is_new:
        log_dir.disk.close(log_dir.disk.open(f"{folder}/{max(0, log_start_offset):020d}{LOG}"))
        found.sizes[max(0, log_start_offset)] = 0
    interval = config.index_interval_bytes
    segments = [Segment(log_dir, folder, base, found.sizes[base], interval) for base in sorted(found.sizes)]
    if is_new and config.preallocate:
        segments[0].reserve_space(config.segment_bytes)
    newest = found.snapshots[-1] if found.snapshots else -1
    log = PartitionLog(
        log_dir,
        folder,
        topic,
        partition,
        config,
        segments,
        next_offset=_clean_end(segments[-1], newest) if is_clean else segments[-1].base_offset,
        log_start_offset=max(log_start_offset, segments[0].base_offset),
        recovery_point=0,
    )
    log.snapshot_offset = newest
    if is_clean:
        log.recovery_point = log.next_offset
    else:
        _recover(log, recovery_point)
    if log.log_start_offset > log.next_offset:
        logger.warning(
            "%s: the log ends at offset %d, below its start %d; the log is emptied and restarts at offset %d",
            folder,
            log.next_offset,
            log.log_start_offset,
            log.log_start_offset,
        )
        truncate_fully(log, log.log_start_offset)
    log.high_watermark = log.log_start_offset
    return log


def _list_files(log_dir: LogDir, folder: str) -> _Folder:
    found = _Folder()
    for entry in log_dir.disk.list(folder):
        name = entry.name
        stem, _, suffix = name.partition(".")
        if suffix == "log" and stem.isdigit():
            found.sizes[int(stem)] = entry.stat().st_size
        elif suffix == "snapshot" and stem.isdigit():
            found.snapshots.append(int(stem))
        elif name.endswith((DELETED, CLEANED, SWAP, _TMP)):
            found.leftovers.add(name)
        elif suffix in ("index", "timeindex", "txnindex"):
            found.indexes.append(name)
    found.snapshots.sort()
    return found


def _remove_leftovers(log_dir: LogDir, folder: str, names: set[str]) -> None:
    for name in names:
        if name.endswith((DELETED, _TMP)):
            log_dir.disk.unlink(f"{folder}/{name}")
    segment_swap.finish_interrupted(log_dir, folder)


def _drop_orphans(log_dir: LogDir, folder: str, found: _Folder) -> None:
    for name in found.indexes:
        stem = name.partition(".")[0]
        if stem.isdigit() and int(stem) not in found.sizes:
            log_dir.disk.unlink(f"{folder}/{name}")
    strays = [offset for offset in found.snapshots[:-1] if offset not in found.sizes]
    for offset in strays:
        log_dir.disk.unlink(snapshots.snapshot_path(folder, offset))


def _clean_end(active: Segment, newest_snapshot: int) -> int:
    """The end offset of a log that was closed cleanly."""
    if not active.size_bytes:
        return active.base_offset
    if newest_snapshot > active.base_offset:
        return newest_snapshot
    return active.load()


def _recover(log: PartitionLog, recovery_point: int) -> None:
    first = log.segment_at(recovery_point)
    next_offset = log.segments[first].base_offset
    has_markers = False
    scan: _Scan | None = None
    for number in range(first, len(log.segments)):
        segment = log.segments[number]
        if segment.base_offset < next_offset:
            if scan is not None and scan.end_before_gap("the next segment begins below its offset"):
                next_offset = scan.next_offset
                _cut(log, number - 1, scan)
            else:
                _drop_from(log, number, "overlaps the segment before it")
            break
        scan = _Scan(segment)
        scan.run(log)
        if segment is log.active and not log.config.is_compacted:
            scan.end_before_gap("there is a gap in the offsets before the last batch")
        next_offset = scan.next_offset
        has_markers |= scan.has_markers
        if scan.valid_bytes < segment.size_bytes:
            _cut(log, number, scan)
            break
    log.next_offset = next_offset
    log.recovery_point = min(max(recovery_point, log.log_start_offset), next_offset)
    _recover_rest(log, first, has_markers)


def _recover_rest(log: PartitionLog, first: int, has_markers: bool) -> None:
    """Recovers what depends on the log's end: snapshots, epochs, aborted transactions."""
    snapshots.delete_snapshots(log.log_dir.disk, log.folder, above=log.next_offset)
    log.unload_producers()
    if log.next_offset > log.segments[0].base_offset or log.epochs.entries:
        log.cut_epochs(log.next_offset)
    if has_markers:
        _rebuild_txn_indexes(log, log.segments[first:])
    for segment in log.segments[first:]:
        segment.unload_indexes()


def _cut(log: PartitionLog, number: int, scan: "_Scan") -> None:
    segment = log.segments[number]
    lost_bytes = segment.size_bytes - scan.valid_bytes
    logger.warning(
        "%s: the log is cut at offset %d, position %d of %s, because %s; %d bytes are lost",
        log.folder,
        scan.next_offset,
        scan.valid_bytes,
        segment.path(),
        scan.problem,
        lost_bytes,
    )
    segment.cut_file(scan.valid_bytes)
    log.size_bytes -= lost_bytes
    if scan.must_rebuild:
        segment.rebuild()
    if number + 1 < len(log.segments):
        _drop_from(log, number + 1, "is behind the cut")


def _drop_from(log: PartitionLog, number: int, why: str) -> None:
    dropped = log.segments[number:]
    for segment in dropped:
        logger.warning("%s: segment %s is dropped because it %s", log.folder, segment.path(), why)
    del log.segments[number:]
    log.active = log.segments[-1]
    discard(log, dropped[::-1])


class _Scan:
    """Reads a segment from its first byte, rebuilds its indexes, and stops at the first wrong batch.

    The crc does not cover the base offset, so a damaged offset shows only in the order of batches. Offsets may have
    gaps where a log was compacted. But if a batch behind a gap has a lower offset, then the batch at the gap is the
    wrong one.
    """

    __slots__ = (
        "_gap",
        "_last_at",
        "_window",
        "_window_at",
        "has_markers",
        "must_rebuild",
        "next_offset",
        "problem",
        "segment",
        "valid_bytes",
    )

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.valid_bytes = 0
        self.next_offset = segment.base_offset
        self.has_markers = False
        self.must_rebuild = False
        #: Why the scan stopped; empty if it did not.
        self.problem = ""
        #: The position of the last batch.
        self._last_at = -1
        #: The position of the last batch with a gap before it, and the offset at which that gap begins.
        self._gap: tuple[int, int] | None = None
        self._window = b""
        self._window_at = 0

    def run(self, log: PartitionLog) -> None:
        segment = self.segment
        if not segment.size_bytes:
            return
        segment.begin_rebuild()
        segment.aborted().reset()
        while self.valid_bytes < segment.size_bytes:
            header = self._next()
            if header is None:
                break
            if header.base_offset != self.next_offset:
                self._gap = self.valid_bytes, self.next_offset
            self._last_at = self.valid_bytes
            self.next_offset = segment.index_batch(header, self.valid_bytes)
            self.valid_bytes += header.size_bytes
            self.has_markers |= header.is_control
            if header.leader_epoch > log.epochs.latest:
                log.epochs.begin(header.leader_epoch, header.base_offset)
        segment.finish()

    @property
    def ends_in_gap(self) -> bool:
        return self._gap is not None and self._gap[0] == self._last_at

    def end_before_gap(self, problem: str) -> bool:
        """Lets the log end before its last batch, if there is a gap before that batch. Returns whether there is."""
        if self._gap is None or not self.ends_in_gap:
            return False
        self.valid_bytes, self.next_offset = self._gap
        self.problem, self.must_rebuild = problem, True
        return True

    def _next(self) -> BatchHeader | None:
        left_bytes = self.segment.size_bytes - self.valid_bytes
        if left_bytes < HEADER_BYTES:
            self.problem = f"{left_bytes} bytes are too few for a batch"
            return None
        header = read_header(self._bytes(self.valid_bytes, HEADER_BYTES))
        self.problem = self._problem_with(header, left_bytes)
        return None if self.problem else header

    def _problem_with(self, header: BatchHeader, left_bytes: int) -> str:
        if header.magic != MAGIC:
            return f"a batch has magic {header.magic}"
        if not HEADER_BYTES <= header.size_bytes <= left_bytes:
            return f"a batch has {header.size_bytes} bytes where {left_bytes} are left"
        if header.last_offset_delta < 0 or header.base_offset < self.next_offset:
            problem = f"a batch has offset {header.base_offset} where {self.next_offset} is next"
            if self._gap is not None and header.base_offset >= self._gap[1]:
                self.end_before_gap(problem)
            return problem
        if not self.segment.can_hold(header.last_offset):
            return f"offset {header.last_offset} is too far from the segment's base offset"
        if self._crc(header.size_bytes) != header.crc:
            return "the crc of a batch does not match"
        return ""

    def _crc(self, size_bytes: int) -> int:
        crc, at, end = 0, self.valid_bytes + CRC_STARTS_AT, self.valid_bytes + size_bytes
        while at < end:
            part = self._bytes(at, min(_WINDOW_BYTES, end - at))
            crc = crc32c(part, crc)
            at += len(part)
        return crc

    def _bytes(self, position: int, size_bytes: int) -> memoryview:
        start = position - self._window_at
        if start < 0 or start + size_bytes > len(self._window):
            self._window = self.segment.read_bytes(position, max(_WINDOW_BYTES, size_bytes))
            self._window_at, start = position, 0
            if len(self._window) < size_bytes:
                raise OSError(f"{self.segment.path()} has become shorter while it was read")
        return memoryview(self._window)[start : start + size_bytes]


def _rebuild_txn_indexes(log: PartitionLog, segments: list[Segment]) -> None:
    """Rebuilds the aborted transactions of segments, from the producers' states at the first segment's base offset."""
    states = ProducerStates()
    start = segments[0].base_offset
    known = snapshots.load_newest(log.log_dir.disk, log.folder, start, states)
    for segment, position, header in lookups.batches_from(log, max(known, log.segments[0].base_offset)):
        if header.base_offset < known or not header.has_producer:
            continue
        batch = segment.read_bytes(position, header.size_bytes) if header.is_control else b""
        try:
            if header.base_offset >= start:
                note_producer(segment, states, header, batch)
            elif header.is_control:
                end_transaction(states, header, batch)
            else:
                note_producer(segment, states, header, batch)
        except InvalidRecord as error:
            logger.warning("%s: the control batch at offset %d is skipped: %s", log.folder, header.base_offset, error)
