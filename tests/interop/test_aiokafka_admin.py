"""The admin client of aiokafka. It returns responses unchanged, with error codes; it has no incremental alter, and no
offsets.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from interop_brokers import BROKERS
from interop_records import WITHIN_S

pytestmark = pytest.mark.usefixtures("client_complaints")


@pytest.fixture
async def admin(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    yield admin
    await admin.close()


async def create(
    admin: AIOKafkaAdminClient, topic: str, partitions: int = 1, replicas: int = BROKERS, **config: str
) -> int:
    """Returns the code of the answer."""
    settings = {name.replace("_", "."): value for name, value in config.items()}
    answer = await admin.create_topics([NewTopic(topic, partitions, replicas, topic_configs=settings)])
    [(_, code, *_)] = answer.topic_errors
    return int(code)


async def settings_of(admin: AIOKafkaAdminClient, kind: ConfigResourceType, name: str) -> dict[str, str]:
    [answer] = await admin.describe_configs([ConfigResource(kind, name)])
    [(code, _, _, _, entries, *_)] = answer.resources
    assert code == 0
    return {entry[0]: entry[1] for entry in entries}


async def alter(admin: AIOKafkaAdminClient, kind: ConfigResourceType, name: str, configs: dict[str, str]) -> int:
    answers = await admin.alter_configs([ConfigResource(kind, name, configs)])
    codes = [each[0] for answer in answers for each in answer.resources]
    return max(codes)


async def test_a_topic_is_created_described_listed_and_deleted(admin: AIOKafkaAdminClient, topic: str) -> None:
    assert await create(admin, topic, 3, retention_ms="12345") == 0
    assert topic in await admin.list_topics()
    [described] = await admin.describe_topics([topic])
    assert (described["topic"], described["error_code"]) == (topic, 0)
    found = sorted((each["partition"], each["leader"], sorted(each["isr"])) for each in described["partitions"])
    assert [(index, isr) for index, _, isr in found] == [(index, [*range(BROKERS)]) for index in range(3)]
    assert {leader for _, leader, _ in found} == set(range(BROKERS))
    assert (await settings_of(admin, ConfigResourceType.TOPIC, topic))["retention.ms"] == "12345"
    answer = await admin.delete_topics([topic])
    assert [each[1] for each in answer.topic_error_codes] == [0]
    assert topic not in await admin.list_topics()


async def test_refused_topics(admin: AIOKafkaAdminClient, topic: str) -> None:
    assert await create(admin, topic) == 0
    assert await create(admin, topic) == TopicAlreadyExistsError.errno
    assert await create(admin, "a/b") == InvalidTopicError.errno
    assert await create(admin, "interop-refused", replicas=BROKERS + 1) == InvalidReplicationFactorError.errno
    assert await create(admin, "interop-refused", partitions=0) == InvalidPartitionsError.errno
    assert await create(admin, "interop-refused", retention_ms="soon") == InvalidConfigurationError.errno
    answer = await admin.delete_topics(["interop-refused"])
    assert [each[1] for each in answer.topic_error_codes] == [UnknownTopicOrPartitionError.errno]


async def test_partitions_are_added_and_never_taken_away(admin: AIOKafkaAdminClient, topic: str) -> None:
    await create(admin, topic, 2)
    await admin.create_partitions({topic: NewPartitions(5)})
    async with asyncio.timeout(WITHIN_S):  # of several brokers it asks any; one may learn of it a moment later
        while len((await admin.describe_topics([topic]))[0]["partitions"]) != 5:
            pass
    with pytest.raises(InvalidPartitionsError):
        await admin.create_partitions({topic: NewPartitions(1)})
    with pytest.raises(UnknownTopicOrPartitionError):
        await admin.create_partitions({"interop-refused": NewPartitions(2)})


async def test_settings_of_a_topic(admin: AIOKafkaAdminClient, topic: str) -> None:
    await create(admin, topic, segment_bytes="2000000")
    assert await alter(admin, ConfigResourceType.TOPIC, topic, {"retention.ms": "1000"}) == 0
    settings = await settings_of(admin, ConfigResourceType.TOPIC, topic)
    assert (settings["retention.ms"], settings["segment.bytes"]) == ("1000", "1073741824")
    refused = await alter(admin, ConfigResourceType.TOPIC, topic, {"retention.ms": "soon"})
    assert refused == InvalidConfigurationError.errno
    unknown = await alter(admin, ConfigResourceType.TOPIC, "interop-refused", {"retention.ms": "1"})
    assert unknown == UnknownTopicOrPartitionError.errno


async def test_settings_of_the_broker(admin: AIOKafkaAdminClient) -> None:
    assert await alter(admin, ConfigResourceType.BROKER, "0", {"log.cleaner.threads": "2"}) == 0
    assert (await settings_of(admin, ConfigResourceType.BROKER, "0"))["log.cleaner.threads"] == "2"
    assert await alter(admin, ConfigResourceType.BROKER, "0", {}) == 0
    assert (await settings_of(admin, ConfigResourceType.BROKER, "0"))["log.cleaner.threads"] == "1"


async def test_deleting_records(bootstrap: str, admin: AIOKafkaAdminClient, topic: str) -> None:
    await create(admin, topic)
    home = TopicPartition(topic, 0)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all") as producer:  # only what all have is deleted
        for _ in range(10):
            await producer.send(topic, b"v")
    assert await admin.delete_records({home: RecordsToDelete(4)}) == {home: 4}
    with pytest.raises(OffsetOutOfRangeError):
        await admin.delete_records({home: RecordsToDelete(11)})
    assert await admin.delete_records({home: RecordsToDelete(-1)}) == {home: 10}


async def test_the_cluster(bootstrap: str, admin: AIOKafkaAdminClient) -> None:
    cluster: dict[str, Any] = await admin.describe_cluster()
    found = {node["node_id"]: f"{node['host']}:{node['port']}" for node in cluster["brokers"]}
    assert found == dict(enumerate(bootstrap.split(",")))
    assert cluster["controller_id"] in found
    assert cluster["cluster_id"]
