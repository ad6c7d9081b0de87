"""The kernel writes the same bytes as Python does."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba")

from headrace.client.kernels.bulk_encoding import encode_many
from headrace.client.kernels.loading import KernelLoading
from headrace.client.producer import record_encoding
from headrace.client.producer.record_encoding import encode_quickly, encode_records

contents = st.none() | st.binary(max_size=200)


@st.composite
def columns(draw: st.DrawFn) -> tuple[list[bytes | None], list[bytes | None] | None, list[tuple[int, int]]]:
    values = draw(st.lists(contents, min_size=1, max_size=100))
    keys = draw(st.none() | st.lists(contents, min_size=len(values), max_size=len(values)))
    starts = sorted({0, *draw(st.lists(st.integers(0, len(values) - 1), max_size=3))})
    return values, keys, [(start, draw(st.integers(0, 2**41))) for start in starts]


@settings(deadline=None)
@given(columns())
def test_the_same_bytes(some: tuple[list[bytes | None], list[bytes | None] | None, list[tuple[int, int]]]) -> None:
    values, keys, times = some
    assert bytes(encode_many(values, keys, times)) == encode_records(values, keys, {}, times)


def test_it_is_used_for_many_records_without_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    loading = KernelLoading("headrace.client.kernels.bulk_encoding")
    loading.is_done = True
    monkeypatch.setattr(record_encoding, "_loading", loading)
    values = [b"value %d" % number for number in range(1000)]
    headers = {3: (("name", b"content"),)}
    by_python = encode_quickly(values, None, {}, [(0, 1)]), encode_quickly(values, None, headers, [(0, 1)])
    loading.now()
    by_kernel = encode_quickly(values, None, {}, [(0, 1)]), encode_quickly(values, None, headers, [(0, 1)])
    assert [type(one) for one in by_kernel] == [memoryview, bytes]
    assert by_kernel == by_python
