"""The order in which Java considers the keys of a store. The first key that fits a handshake is used.

Kafka uses Java's key manager SunX509. It puts the keys into a HashMap by their aliases, in the order in which the store
lists them, and takes the first key of the map that has the wanted kind (RSA, EC). So the names decide, not the order in
the file, and not the validity of the certificates. A store of the format JKS lists its entries as a Hashtable does.

``tests/security/tls/java_key_order.csv`` has what Java 17 and Java 25 choose.
"""

from __future__ import annotations

from collections.abc import Sequence

_MAP_SIZE, _TABLE_SIZE = 16, 11


def order_of_key_manager(listed: Sequence[str]) -> list[str]:
    """Returns the aliases in the order of a HashMap.

    :param listed: the aliases as the store lists them.
    """
    size = _MAP_SIZE
    while len(listed) > size * 3 // 4:
        size *= 2

    def bucket(alias: str) -> int:
        value = _hash(alias)
        return (value ^ value >> 16) & size - 1

    return sorted(listed, key=bucket)  # the order within a bucket is that of the insertions


def order_of_jks(stored: Sequence[str]) -> list[str]:
    """Returns the aliases of a JKS file as Java lists them: in the order of a Hashtable, its last bucket first."""
    size = _TABLE_SIZE
    table: list[list[str]] = [[] for _ in range(size)]
    for count, alias in enumerate(stored):
        if count >= size * 3 // 4:
            moved = [each for bucket in reversed(table) for each in bucket]
            size = size * 2 + 1
            table = [[] for _ in range(size)]
            for each in moved:
                table[_hash(each) % 0x80000000 % size].insert(0, each)
        table[_hash(alias) % 0x80000000 % size].insert(0, alias)
    return [alias for bucket in reversed(table) for alias in bucket]


def _hash(text: str) -> int:
    """Returns the hash code of a Java string, without its sign."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = value * 31 + int.from_bytes(units[at : at + 2], "big") & 0xFFFFFFFF
    return value
