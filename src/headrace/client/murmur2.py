"""The hash that sends a key to its partition: murmur2 as Java's client has it.

Every client of a topic must put one key into one partition, whatever language it is in; so this is a fact of the
protocol and not ours to choose. 32 bits, seed 0x9747b28c, four bytes at a time, little-endian. The partition is the
hash without its sign bit, modulo the number of partitions.
"""

from functools import lru_cache
from struct import Struct

_SEED = 0x9747B28C
_FACTOR = 0x5BD1E995
_MASK = 0xFFFF_FFFF


def murmur2(data: bytes) -> int:
    """The hash as an unsigned number; Java shows the same bits with a sign."""
    size_bytes = len(data)
    hashed = _SEED ^ size_bytes
    words = size_bytes >> 2
    for word in _words(words).unpack_from(data):
        mixed = word * _FACTOR & _MASK
        hashed = (hashed * _FACTOR & _MASK) ^ ((mixed ^ mixed >> 24) * _FACTOR & _MASK)
    if size_bytes & 3:
        rest = int.from_bytes(data[words << 2 :], "little")
        hashed = (hashed ^ rest) * _FACTOR & _MASK
    hashed = (hashed ^ hashed >> 13) * _FACTOR & _MASK
    return hashed ^ hashed >> 15


def partition_for_key(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & 0x7FFF_FFFF) % partition_count


@lru_cache(maxsize=256)
def _words(count: int) -> Struct:
    return Struct(f"<{count}I")
