"""The records that every client sends and expects back, and a fast comparison of many of them."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

CODECS = ("gzip", "snappy", "lz4", "zstd")

#: Ends in no round number: a broker or a client that counts in seconds loses it.
FIRST_TIMESTAMP_MS = 1_700_000_000_123


#: Longer than any of these tests may take: what hangs this long has failed.
WITHIN_S = 30
#: How long a waiting consumer lets the broker hold its fetch. What comes sooner was pushed out by the new record.
LONG_POLL_MS = 20_000


class Sent(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int


#: Each thing that a record can have, and can lack. An empty value is not a missing one.
KINDS = (
    Sent(b"key", b"value", (), FIRST_TIMESTAMP_MS),
    Sent(None, b"no key", (), FIRST_TIMESTAMP_MS + 1),
    Sent(b"tombstone", None, (), FIRST_TIMESTAMP_MS + 2),
    Sent(b"", b"", (), FIRST_TIMESTAMP_MS + 3),
    Sent(
        b"k",
        b"headers",
        (("trace", b"\x00\xff"), ("again", b"1"), ("again", b"2"), ("empty", b"")),
        FIRST_TIMESTAMP_MS + 4,
    ),
    Sent("Schlüssel".encode(), "水渠".encode(), (("ключ", "значение".encode()),), FIRST_TIMESTAMP_MS + 777),
)


def many(total: int) -> list[bytes]:
    return [b"record-%07d" % number for number in range(total)]


def checksum(values: Iterable[bytes]) -> str:
    """The same for the same values in any order: partitions are read in any."""
    digest = sha256()
    for value in sorted(values):
        digest.update(b"%d:" % len(value))
        digest.update(value)
    return digest.hexdigest()
