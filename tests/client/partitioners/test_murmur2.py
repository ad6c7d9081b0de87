"""Keys go to the partitions that Java's client sends them to. The hashes are those of Apache Kafka's own client."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.partitioners.murmur2 import murmur2, partition_for_key


@pytest.mark.parametrize(
    ("key", "java_hash"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
        (b"", 275646681),
    ],
)
def test_hash_is_javas(key, java_hash):
    assert murmur2(key) == java_hash & 0xFFFF_FFFF
    assert partition_for_key(key, 7) == (java_hash & 0x7FFF_FFFF) % 7


@given(st.binary(max_size=64), st.integers(1, 1000))
def test_every_key_has_one_partition_among_those_there_are(key, partition_count):
    assert 0 <= partition_for_key(key, partition_count) < partition_count
    assert partition_for_key(bytearray(key), partition_count) == partition_for_key(key, partition_count)
