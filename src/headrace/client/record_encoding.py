"""Records into the bytes of a batch, many at a time.

A record's layout is in ``protocol/record_body.py``. Encoded one by one, a small record costs about a microsecond, most
of it for the calls; so a batch keeps its records as columns (values, keys, ...) while it fills, and they are encoded
here, all of them, when it closes. What a record takes is then lists that are walked by the interpreter's own C code:

uniform   records without key and headers whose values are of one size: what stands before a value depends on its
          place in the batch alone, so these heads are kept, and the batch is the heads and the values joined in turn.
plain     no headers, and nothing longer than 8 KiB: four pieces a record out of tables, then one join.
any       the rest, record by record.

A record ends with the count of its headers. Where there are none, that zero is written together with the length of
the next record, so the first zero is cut off again and one is put at the end.
"""

from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import chain

from headrace.protocol.record_body import Headers, write_varint

Key = bytes | None
Value = bytes | None

#: The numbers 0 to 8191 as varints: all that are not negative and take one byte or two.
VARINTS = [bytes((number << 1,)) for number in range(64)] + [
    bytes((number << 1 & 0x7F | 0x80, number >> 6)) for number in range(64, 8192)
]
LISTED = len(VARINTS)
_SHORT = 64
_NONE = b"\x01"
#: Of uniform batches with more records than that no heads are kept: their number is what the memory goes to.
_KEPT_HEADS = 2048
#: Attributes, key length, and the count of headers: a byte each.
_FIXED_BYTES = 3


def bound_bytes(value_bytes: int, key_bytes: int = 0) -> int:
    """The most that a record takes whose timestamp is within eight seconds of the batch's first, without headers."""
    if value_bytes + key_bytes < LISTED - 16:
        return 12 + (key_bytes and key_bytes + 1) + value_bytes
    return 12 + 13 + key_bytes + value_bytes


def encode_records(
    values: Sequence[Value], keys: Sequence[Key] | None, headers: dict[int, Headers], times: Sequence[tuple[int, int]]
) -> bytes:
    """The records of a batch, in order.

    :param keys: as many as there are values; None where no record has one.
    :param headers: by the record's place, of those that have any.
    :param times: the timestamps as runs: from which record on, and what; the first is that of record 0.
    """
    count = len(values)
    if headers or count > LISTED or None in values:
        return _encode_any(values, keys, headers, times)
    longest = max(map(len, values))  # type: ignore[arg-type]
    if keys is not None:
        longest += max(len(key or b"") for key in keys)
    if longest > LISTED - 32 or any(not 0 <= ms - times[0][1] < LISTED for _, ms in times):
        return _encode_any(values, keys, headers, times)
    parts: list[bytes] = []
    for (first, ms), (end, _) in zip(times, [*times[1:], (count, 0)], strict=True):
        delta_ms = ms - times[0][1]
        run: Sequence[bytes] = values if first == 0 and end == count else values[first:end]  # type: ignore[assignment]
        if keys is not None:
            parts += _keyed_pieces(run, keys[first:end], first, delta_ms)
        elif count <= _KEPT_HEADS and min(map(len, run)) == max(map(len, run)):
            heads = _heads(len(run[0]), delta_ms, end)
            parts += chain.from_iterable(zip(heads[first:end], run, strict=True))
        else:
            parts += _plain_pieces(run, first, delta_ms)
    parts[0] = parts[0][1:]
    parts.append(b"\x00")
    return b"".join(parts)


# ------------------------------------------------------------------------------------------------- by tables of heads


#: By value size and time; lists are replaced and never changed, since several threads may encode at once.
_HEADS: dict[tuple[int, int], list[bytes]] = {}
_MOST_HEAD_LISTS = 128


def _heads(value_bytes: int, delta_ms: int, count: int) -> list[bytes]:
    heads = _HEADS.get((value_bytes, delta_ms), [])
    if len(heads) < count:
        if len(_HEADS) >= _MOST_HEAD_LISTS:
            _HEADS.clear()
        heads = heads + [_head(value_bytes, delta_ms, at) for at in range(len(heads), count)]
        _HEADS[value_bytes, delta_ms] = heads
    return heads


def _head(value_bytes: int, delta_ms: int, at: int) -> bytes:
    middle = b"\x00" + VARINTS[delta_ms] + VARINTS[at] + _NONE + VARINTS[value_bytes]
    return b"\x00" + VARINTS[len(middle) + value_bytes + 1] + middle


def _plain_pieces(values: Sequence[bytes], first: int, delta_ms: int) -> list[bytes]:
    lengths, sizes, times = _after_zero(), _after_none(), _times(delta_ms)
    pieces: list[bytes] = []
    fixed = _FIXED_BYTES + len(VARINTS[delta_ms])
    for at, value in enumerate(values, first):
        size = len(value)
        pieces += (
            lengths[size + fixed + (1 if at < _SHORT else 2) + (1 if size < _SHORT else 2)], times[at], sizes[size],
            value,
        )  # fmt: skip
    return pieces


def _keyed_pieces(values: Sequence[bytes], keys: Sequence[Key], first: int, delta_ms: int) -> list[bytes]:
    lengths, times = _after_zero(), _times(delta_ms)
    pieces: list[bytes] = []
    fixed = 2 + len(VARINTS[delta_ms])
    for at, (key, value) in enumerate(zip(keys, values, strict=True), first):
        size = len(value)
        if key is None:
            key, key_size = b"", _NONE
        else:
            key_size = VARINTS[len(key)]
        whole = size + len(key) + len(key_size) + fixed + (1 if at < _SHORT else 2) + (1 if size < _SHORT else 2)
        pieces += (lengths[whole], times[at], key_size, key, VARINTS[size], value)
    return pieces


@cache
def _after_zero() -> list[bytes]:
    return [b"\x00" + varint for varint in VARINTS]


@cache
def _after_none() -> list[bytes]:
    return [_NONE + varint for varint in VARINTS]


@lru_cache(maxsize=32)
def _times(delta_ms: int) -> list[bytes]:
    before = b"\x00" + VARINTS[delta_ms]
    return [before + varint for varint in VARINTS]


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
