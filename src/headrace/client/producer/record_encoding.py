"""Encodes the records of a batch, all at once.

``protocol/record_body.py`` has the layout of a record. Encoding one record at a time costs about a microsecond per
small record, most of it for function calls. So a batch keeps its records as columns (values, keys, ...), and this
module encodes all of them when the batch closes. Most of the work is then done by C code of the interpreter that walks
over lists.

The columns are cut into segments, where the timestamp changes and where the varint of a record's index becomes a byte
longer. Within a segment, a record consists of few pieces, most of them from tables. All pieces of a batch are joined at
once. There are three ways:

uniform   no keys, and values of one size: the bytes before the index are the same for all records, and the bytes
          between index and value depend on the index only
plain     values of any size below 8 KiB: four pieces per record, six with keys
any       headers, null values, large values, timestamps far apart: record by record

If Numba is installed, a kernel encodes the large batches of a busy process (``kernels/bulk_encoding.py``).

A record ends with the number of its headers. If that is zero, the zero byte is written together with the length of the
next record. So the zero before the first record is removed, and one is added at the end.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain, repeat

from headrace.client.kernels.loading import KernelLoading
from headrace.protocol.record_body import Headers
from headrace.protocol.wire.varints import write_varint

Key = bytes | None
Value = bytes | None

#: The numbers 0 to 8191 as varints: these are all non-negative numbers whose varint has one or two bytes.
VARINTS = [bytes((number << 1,)) for number in range(64)] + [
    bytes((number << 1 & 0x7F | 0x80, number >> 6)) for number in range(64, 8192)
]
LISTED = len(VARINTS)
_NONE = b"\x01"
#: For batches of at least this many records, the kernel saves more than its call costs.
_MANY = 256
_loading = KernelLoading("headrace.client.kernels.bulk_encoding")
#: At these indexes the varint of an index becomes a byte longer.
_WIDER_AT = (64, 8192, 1048576)


def bound_bytes(value_bytes: int, key_bytes: int = 0) -> int:
    """Returns the most bytes that a record without headers takes within 8 s after the first record of the batch."""
    if value_bytes + key_bytes < LISTED - 16:
        return 12 + (key_bytes and key_bytes + 1) + value_bytes
    return 12 + 13 + key_bytes + value_bytes


def encode_quickly(
    values: Sequence[Value], keys: Sequence[Key] | None, headers: dict[int, Headers], times: Sequence[tuple[int, int]]
) -> bytes | memoryview:
    """Does the same as :func:`encode_records`, by the kernel if that is faster."""
    if len(values) >= _MANY and not headers and (kernels := _loading.when_busy(len(values))) is not None:
        return kernels.encode_many(values, keys, times)  # type: ignore[no-any-return]
    return encode_records(values, keys, headers, times)


def encode_records(
    values: Sequence[Value], keys: Sequence[Key] | None, headers: dict[int, Headers], times: Sequence[tuple[int, int]]
) -> bytes:
    """Encodes the records of a batch, in order.

    :param keys: one per value; None if no record has a key.
    :param headers: the headers by the index of the record, for records that have headers.
    :param times: runs of equal timestamps: the index of the first record, and the timestamp. The first run is at 0.
    """
    if headers or None in values:
        return _encode_any(values, keys, headers, times)
    longest = max(map(len, values))  # type: ignore[arg-type]
    if keys is not None:
        longest += max(len(key or b"") for key in keys)
    if longest > LISTED - 32 or any(not 0 <= ms - times[0][1] < LISTED for _, ms in times):
        return _encode_any(values, keys, headers, times)
    pieces: list[bytes] = []
    for first, end, delta_ms in _segments(times, len(values)):
        some: Sequence[bytes] = values[first:end]  # type: ignore[assignment]
        if keys is not None:
            pieces += _keyed_pieces(some, keys[first:end], first, delta_ms)
        elif min(map(len, some)) == max(map(len, some)):
            pieces += _uniform_pieces(some, first, delta_ms)
        else:
            pieces += _plain_pieces(some, first, delta_ms)
    pieces[0] = pieces[0][1:]
    pieces.append(b"\x00")
    return b"".join(pieces)


def _segments(times: Sequence[tuple[int, int]], count: int) -> Iterator[tuple[int, int, int]]:
    """Returns segments of records with equal timestamps and indexes of one width: first index, end, time delta."""
    base_ms = times[0][1]
    for at, (first, ms) in enumerate(times):
        end = times[at + 1][0] if at + 1 < len(times) else count
        for wider in _WIDER_AT:
            if first < wider < end:
                yield first, wider, ms - base_ms
                first = wider
        yield first, end, ms - base_ms


def _uniform_pieces(values: Sequence[bytes], first: int, delta_ms: int) -> Iterator[bytes]:
    size = len(values[0])
    between = _index_to_value(size, first + len(values))[first : first + len(values)]
    before = b"\x00" + VARINTS[delta_ms]
    whole = len(before) + len(between[0]) + size + 1
    return chain.from_iterable(zip(repeat(b"\x00" + VARINTS[whole] + before), between, values, strict=False))


#: The bytes between timestamp and value of uniform records (index, null key, value length), by value size and index.
#: Lists are replaced and never changed, because several threads may encode at once.
_INDEX_TO_VALUE: dict[int, list[bytes]] = {}
_MAX_CACHED = 100_000


def _index_to_value(size: int, count: int) -> list[bytes]:
    found = _INDEX_TO_VALUE.get(size, [])
    if len(found) < count:
        if sum(map(len, _INDEX_TO_VALUE.values())) + count > _MAX_CACHED:
            _INDEX_TO_VALUE.clear()
        after = _NONE + VARINTS[size]
        found = found + [varint(at) + after for at in range(len(found), count)]
        _INDEX_TO_VALUE[size] = found
    return found


def _plain_pieces(values: Sequence[bytes], first: int, delta_ms: int) -> list[bytes]:
    lengths, sizes = _after_zero(), _after_none()
    places = _places(first, len(values), delta_ms)
    fixed = len(places[0]) + 2  # One byte for the null key, one for zero headers.
    pieces: list[bytes] = []
    for place, value in zip(places, values, strict=True):
        size = len(value)
        pieces += (lengths[size + fixed + (1 if size < 64 else 2)], place, sizes[size], value)
    return pieces


def _keyed_pieces(values: Sequence[bytes], keys: Sequence[Key], first: int, delta_ms: int) -> list[bytes]:
    lengths, varints = _after_zero(), VARINTS
    places = _places(first, len(values), delta_ms)
    fixed = len(places[0]) + 1
    pieces: list[bytes] = []
    for place, key, value in zip(places, keys, values, strict=True):
        size = len(value)
        if key is None:
            key, key_size = b"", _NONE
        else:
            key_size = varints[len(key)]
        whole = size + len(key) + len(key_size) + fixed + (1 if size < 64 else 2)
        pieces += (lengths[whole], place, key_size, key, varints[size], value)
    return pieces


def _places(first: int, count: int, delta_ms: int) -> list[bytes]:
    """Returns the bytes between the length and the key of each record: attributes, timestamp delta, index."""
    before = b"\x00" + VARINTS[delta_ms]
    if first + count <= LISTED:
        return [before + place for place in VARINTS[first : first + count]]
    return [before + varint(at) for at in range(first, first + count)]


@cache
def _after_zero() -> list[bytes]:
    return [b"\x00" + varint for varint in VARINTS]


@cache
def _after_none() -> list[bytes]:
    return [_NONE + varint for varint in VARINTS]


# ------------------------------------------------------------------------------------------------------ one by one


def _encode_any(
    values: Sequence[Value], keys: Sequence[Key] | None, headers: dict[int, Headers], times: Sequence[tuple[int, int]]
) -> bytes:
    out = bytearray()
    runs = iter([*times[1:], (len(values), 0)])
    base_ms = times[0][1]
    time, next_run = b"\x00", next(runs)
    for at, value in enumerate(values):
        if at == next_run[0]:
            time, next_run = varint(next_run[1] - base_ms), next(runs)
        key = None if keys is None else keys[at]
        tail = encode_headers(headers[at]) if at in headers else b"\x00"
        record = b"".join((b"\x00", time, varint(at), *_sized(key), *_sized(value), tail))
        out += varint(len(record))
        out += record
    return bytes(out)


def _sized(data: bytes | None) -> tuple[bytes, bytes]:
    return (_NONE, b"") if data is None else (varint(len(data)), data)


def varint(number: int) -> bytes:
    return VARINTS[number] if 0 <= number < LISTED else write_varint(number)


def encode_headers(headers: Headers) -> bytes:
    encoded = bytearray(varint(len(headers)))
    for name, content in headers:
        raw = name.encode("utf-8", "surrogateescape")
        encoded += varint(len(raw))
        encoded += raw
        if content is None:
            encoded += _NONE
        else:
            encoded += varint(len(content))
            encoded += content
    return bytes(encoded)
