"""Records into the bytes of a batch, many at a time.

A record's layout is in ``protocol/record_body.py``. Encoded one by one, a small record costs about a microsecond, most
of it for the calls; so a batch keeps its records as columns (values, keys, ...) while it fills, and they are encoded
here, all of them, when it closes. What a record takes is then lists that are walked by the interpreter's own C code.

The columns are cut where the time changes and where a record's place takes a byte more; within such a segment records
are made of few pieces, most of them out of tables, and all pieces of a batch are joined at once:

uniform   no keys, values of one size: what comes before a record's place is the same for all, and what stands between
          place and value depends on the place alone
plain     values of any size below 8 KiB: four pieces a record, six with keys
any       headers, tombstones, large values, times far apart: record by record

Large batches of a busy process are encoded by a kernel, where Numba is (``bulk_encoding.py``).

A record ends with the count of its headers. Where there are none, that zero is written together with the length of
the next record, so the first zero is cut off again and one is put at the end.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain, repeat

from headrace.client.arrow.kernel_loading import KernelLoading
from headrace.protocol.record_body import Headers
from headrace.protocol.wire.varints import write_varint

Key = bytes | None
Value = bytes | None

#: The numbers 0 to 8191 as varints: all that are not negative and take one byte or two.
VARINTS = [bytes((number << 1,)) for number in range(64)] + [
    bytes((number << 1 & 0x7F | 0x80, number >> 6)) for number in range(64, 8192)
]
LISTED = len(VARINTS)
_NONE = b"\x01"
#: From so many records on, the kernel is quicker than what it takes to call it.
_MANY = 256
_loading = KernelLoading("headrace.client.arrow.bulk_encoding")
#: From these places on, a place takes a byte more.
_WIDER_AT = (64, 8192, 1048576)


def bound_bytes(value_bytes: int, key_bytes: int = 0) -> int:
    """The most that a record takes whose timestamp is within eight seconds of the batch's first, without headers."""
    if value_bytes + key_bytes < LISTED - 16:
        return 12 + (key_bytes and key_bytes + 1) + value_bytes
    return 12 + 13 + key_bytes + value_bytes


def encode_quickly(
    values: Sequence[Value], keys: Sequence[Key] | None, headers: dict[int, Headers], times: Sequence[tuple[int, int]]
) -> bytes | memoryview:
    """As :func:`encode_records`, by the kernel where that is quicker."""
    if len(values) >= _MANY and not headers and (kernels := _loading.when_busy(len(values))) is not None:
        return kernels.encode_many(values, keys, times)  # type: ignore[no-any-return]
    return encode_records(values, keys, headers, times)


def encode_records(
    values: Sequence[Value], keys: Sequence[Key] | None, headers: dict[int, Headers], times: Sequence[tuple[int, int]]
) -> bytes:
    """The records of a batch, in order.

    :param keys: as many as there are values; None where no record has one.
    :param headers: by the record's place, of those that have any.
    :param times: the timestamps as runs: from which record on, and what; the first is that of record 0.
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
    """From and to which place records have one time, and places of one width; and how long after the first they are."""
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
    between = _betweens(size, first + len(values))[first : first + len(values)]
    before = b"\x00" + VARINTS[delta_ms]
    whole = len(before) + len(between[0]) + size + 1
    return chain.from_iterable(zip(repeat(b"\x00" + VARINTS[whole] + before), between, values, strict=False))


#: Place, no key, and length of the value, by the value's size and the place. Lists are replaced and never changed:
#: several threads may encode at once.
_BETWEENS: dict[int, list[bytes]] = {}
_MOST_BETWEENS = 100_000


def _betweens(size: int, count: int) -> list[bytes]:
    found = _BETWEENS.get(size, [])
    if len(found) < count:
        if sum(map(len, _BETWEENS.values())) + count > _MOST_BETWEENS:
            _BETWEENS.clear()
        after = _NONE + VARINTS[size]
        found = found + [varint(at) + after for at in range(len(found), count)]
        _BETWEENS[size] = found
    return found


def _plain_pieces(values: Sequence[bytes], first: int, delta_ms: int) -> list[bytes]:
    lengths, sizes = _after_zero(), _after_none()
    places = _places(first, len(values), delta_ms)
    fixed = len(places[0]) + 2  # The key that there is not, and the headers that there are not.
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
    """What comes between length and key: attributes, time, place."""
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
