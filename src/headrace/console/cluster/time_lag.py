"""Reads the timestamp of the record that a group reads next, so that a page can tell its lag in time.

No request of Kafka tells the time of an offset, so the record itself is read. That costs a fetch per partition, so a
page asks for it only when a visitor wants it. A read is bounded: the partitions that lag most, one small batch each,
and two seconds. The records are dropped at once; only their timestamps stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from headrace.client.types import TopicPartition
from headrace.console.cluster.reader import ClusterReader

MOST_PARTITIONS = 20
_LONGEST_SECONDS = 2.0
_KEPT_SECONDS = 10.0
_POLL_MS = 200
#: The options of the admin client that a consumer needs too.
_SHARED = ("bootstrap.servers", "security.", "sasl.", "ssl.", "org.apache.kafka.sasl.")
_OPTIONS: dict[str, object] = {
    "client.id": "headrace-console-time-lag",
    "enable.metrics.push": False,
    "enable.auto.commit": False,
    "allow.auto.create.topics": False,
    "auto.offset.reset": "earliest",
    "max.partition.fetch.bytes": 16_384,
    "fetch.max.bytes": 524_288,
    "check.crcs": False,
}


async def next_times(cluster: ClusterReader, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The timestamps of the first records at or behind offsets. Partitions that do not answer in time are left out.

    :param positions: at most ``MOST_PARTITIONS``, with the offset of each.
    """
    wanted = tuple(sorted(positions.items()))[:MOST_PARTITIONS]
    if not wanted:
        return {}
    return await cluster.kept(("next times", wanted), _KEPT_SECONDS, lambda: _read(cluster, dict(wanted)))


async def _read(cluster: ClusterReader, positions: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    from headrace.client.consumer.async_consumer import AsyncConsumer

    given = {name: value for name, value in cluster.clients.items() if name.startswith(_SHARED)}
    found: dict[TopicPartition, int] = {}
    consumer = AsyncConsumer(config={**given, **_OPTIONS})
    try:
        async with asyncio.timeout(_LONGEST_SECONDS):
            await consumer.start()
            consumer.assign(positions)
            for at, offset in positions.items():
                consumer.seek(at, offset)
            while len(found) < len(positions):
                for record in await consumer.poll(_POLL_MS):
                    at = TopicPartition(record.topic, record.partition)
                    if at not in found:
                        found[at] = record.timestamp_ms
                        consumer.pause(at)
    except TimeoutError:
        pass  # What was read in time is shown.
    finally:
        await consumer.close()
    return found
