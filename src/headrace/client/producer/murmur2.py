"""The hash that sends a key to its partition: murmur2 as Java's client has it.

Every client of a topic must put one key into one partition, whatever language it is in; so this is a fact of the
protocol and not ours to choose. 32 bits, seed 0x9747b28c, four bytes at a time, little-endian. The partition is the
hash without its sign bit, modulo the number of partitions.
"""

from struct import Struct

_SEED = 0x9747B28C

#: How keys of up to 255 bytes are read, by their number of whole words.
_WORDS = [Struct(f"<{count}I").unpack_from for count in range(64)]


def murmur2(data: bytes) -> int:
    """The hash as an unsigned number; Java shows the same bits with a sign."""
    size_bytes = len(data)
    hashed = _SEED ^ size_bytes
    words = size_bytes >> 2
    if words:
        unpack_from = _WORDS[words] if words < len(_WORDS) else Struct(f"<{words}I").unpack_from
        for word in unpack_from(data):
            mixed = word * 0x5BD1E995 & 0xFFFF_FFFF
            # h * m ^ k' * m: the two products need only one mask between them.
            hashed = (hashed * 0x5BD1E995 ^ (mixed ^ mixed >> 24) * 0x5BD1E995) & 0xFFFF_FFFF
    if size_bytes & 3:
        rest = int.from_bytes(data[words << 2 :], "little")
        hashed = (hashed ^ rest) * 0x5BD1E995 & 0xFFFF_FFFF
    hashed = (hashed ^ hashed >> 13) * 0x5BD1E995 & 0xFFFF_FFFF
    return hashed ^ hashed >> 15


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Keys come again and again: the hashes of the last ones are kept, which is a tenth of the price."""
    positive = _POSITIVE.get(key) if type(key) is bytes else murmur2(key) & 0x7FFF_FFFF
    if positive is None:
        if len(_POSITIVE) >= _MOST_KEPT:
            _POSITIVE.clear()
        positive = murmur2(key) & 0x7FFF_FFFF
        if len(key) <= _LONGEST_KEPT_BYTES:
            _POSITIVE[key] = positive
    return positive % partition_count


_POSITIVE: dict[bytes, int] = {}
_MOST_KEPT = 10_000
_LONGEST_KEPT_BYTES = 64
