"""A follower's Fetch (v12 and v13), written by hand: it is written for every acknowledgement.

The layout, with compact lengths and tags::

    replica_id int32, max_wait int32, min_bytes int32, max_bytes int32, isolation_level int8, session_id int32,
    session_epoch int32, topics [
        topic string (v12) or topic_id uuid (13 on), partitions [
            index int32, current_leader_epoch int32, fetch_offset int64, last_fetched_epoch int32,
            log_start_offset int64, max_bytes int32
        ]
    ], forgotten [ topic as above, partitions [ index int32 ] ], rack_id string
"""

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from headrace.protocol.encoder import put_uvarint
from headrace.replication.leader import FollowerFetch

_HEAD = Struct(">iiiibii")
#: With no tags behind it.
_PARTITION = Struct(">iiqiqib")
_INDEX = Struct(">i")
_NO_TAGS = b"\x00"
_READ_UNCOMMITTED = 0
_NO_RACK_NO_TAGS = b"\x01\x00"


class FetchLimits(NamedTuple):
    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_partition_bytes: int


def write_request(
    limits: FetchLimits,
    session_id: int,
    session_epoch: int,
    asked: Iterable[tuple[bytes, int, FollowerFetch]],
    forgotten: Iterable[tuple[bytes, int]],
) -> bytearray:
    """
    :param asked: by topic as it is written (an id, or a name with a compact length) and partition.
    """
    replica_id, max_wait_ms, min_bytes, max_bytes, max_partition_bytes = limits
    out = bytearray(
        _HEAD.pack(replica_id, max_wait_ms, min_bytes, max_bytes, _READ_UNCOMMITTED, session_id, session_epoch)
    )
    topics: dict[bytes, list[bytes]] = {}
    for topic, index, (leader_epoch, offset, last_epoch, log_start_offset) in asked:
        topics.setdefault(topic, []).append(
            _PARTITION.pack(index, leader_epoch, offset, last_epoch, log_start_offset, max_partition_bytes, 0)
        )
    _put_topics(out, topics)
    topics.clear()
    for topic, index in forgotten:
        topics.setdefault(topic, []).append(_INDEX.pack(index))
    _put_topics(out, topics)
    out += _NO_RACK_NO_TAGS
    return out


def _put_topics(out: bytearray, topics: dict[bytes, list[bytes]]) -> None:
    put_uvarint(out, len(topics) + 1)
    for topic, partitions in topics.items():
        out += topic
        put_uvarint(out, len(partitions) + 1)
        out += b"".join(partitions)
        out += _NO_TAGS
