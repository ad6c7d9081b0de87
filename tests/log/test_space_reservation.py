"""``preallocate``: the disk space of a whole segment is reserved when the segment begins, and the rest is released."""

import errno
import os

import pytest
from log_harness import LogHarness, append, headers

from headrace.log.config import LogConfig
from headrace.log.space_reservation import reserve
from headrace.protocol.errors import StorageError
from headrace.testing.faulty_disk import FaultyDisk

SEGMENT_BYTES = 256 * 1024


@pytest.fixture(autouse=True)
def can_reserve(tmp_path):
    probe = tmp_path / "probe"
    with probe.open("wb") as file:
        reserve(file.fileno(), SEGMENT_BYTES)
    if not probe.stat().st_blocks:
        pytest.skip("the file system of the temporary folder cannot reserve space")


def sizes(segment):
    """The size of a segment's file, and the space that it takes on disk."""
    status = os.stat(segment.path())
    return status.st_size, status.st_blocks * 512


def test_space_is_reserved_and_the_rest_is_released_when_the_segment_is_full(tmp_path):
    harness = LogHarness(tmp_path / "data", config=LogConfig(preallocate=True, segment_bytes=SEGMENT_BYTES))
    log = harness.fresh()
    first = log.active
    assert sizes(first) == (0, SEGMENT_BYTES)
    append(log, value=b"v" * 10_000)
    size, space = sizes(first)
    assert size == first.size_bytes
    assert space == SEGMENT_BYTES
    log.roll()
    size, space = sizes(first)
    assert size == first.size_bytes
    assert space < 3 * size
    assert sizes(log.active) == (0, SEGMENT_BYTES)
    append(log)
    harness.stop()
    assert sizes(log.active)[1] < SEGMENT_BYTES


def test_a_crash_leaves_a_file_without_zeros_at_its_end(tmp_path):
    harness = LogHarness(tmp_path / "data", config=LogConfig(preallocate=True, segment_bytes=SEGMENT_BYTES))
    append(harness.fresh(), 3)
    log = harness.reborn()
    assert [header.last_offset for header in headers(log)] == [2]
    assert append(log).base_offset == 3


def test_without_the_setting_nothing_is_reserved(tmp_path):
    harness = LogHarness(tmp_path / "data", config=LogConfig(segment_bytes=SEGMENT_BYTES))
    assert sizes(harness.fresh().active) == (0, 0)


def test_a_full_disk_is_an_error(tmp_path):
    disk = FaultyDisk()
    disk.fail("reserve", error_number=errno.ENOSPC)
    harness = LogHarness(tmp_path / "data", config=LogConfig(preallocate=True), disk=disk)
    with pytest.raises(StorageError, match="No space left"):
        harness.fresh()


def test_a_file_system_that_cannot_reserve_space_is_no_error():
    reader, writer = os.pipe()
    with pytest.raises(OSError, match="Illegal seek"):
        reserve(writer, 4096)  # a real error is raised
    os.close(reader)
    os.close(writer)
    with open("/proc/self/comm", "r+b") as file:
        reserve(file.fileno(), 4096)
