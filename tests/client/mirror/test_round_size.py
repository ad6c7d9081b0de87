"""Rounds of a mirror become small enough for a target that throttles, and grow again."""

from headrace.client.mirror.round_size import MAX_BYTES, RoundSize

TIMEOUT_MS = 60_000
QUOTA_BYTES_PER_S = 100_000


def test_rounds_shrink_until_they_fit_the_quota_of_the_target_and_stay_there():
    size, failures = RoundSize(), 0
    for _ in range(50):
        took_ms = size.max_bytes / QUOTA_BYTES_PER_S * 1000
        if took_ms > TIMEOUT_MS:
            size.failed(TIMEOUT_MS, TIMEOUT_MS)
            failures += 1
        else:
            size.committed(size.max_bytes, took_ms, TIMEOUT_MS)
    assert failures <= 2
    assert TIMEOUT_MS / 16 <= size.max_bytes / QUOTA_BYTES_PER_S * 1000 <= TIMEOUT_MS / 4


def test_rounds_grow_again_when_the_target_is_fast():
    size = RoundSize()
    size.failed(TIMEOUT_MS, TIMEOUT_MS)
    assert size.max_bytes < MAX_BYTES
    for _ in range(20):
        size.committed(size.max_bytes, 100, TIMEOUT_MS)
    assert size.max_bytes == MAX_BYTES


def test_a_small_round_and_a_quick_failure_change_nothing():
    size = RoundSize()
    size.committed(1000, 10, TIMEOUT_MS)
    size.failed(10, TIMEOUT_MS)
    assert size.max_bytes == MAX_BYTES


def test_a_round_is_never_so_small_that_nothing_fits():
    size = RoundSize()
    for _ in range(20):
        size.failed(TIMEOUT_MS, TIMEOUT_MS)
    assert size.max_bytes == 64 << 10
