"""The admin client of confluent-kafka: topics, partitions, settings, offsets, the cluster."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from interop_brokers import BROKERS, until
from interop_records import FIRST_TIMESTAMP_MS, WITHIN_S

pytestmark = pytest.mark.usefixtures("librdkafka_complaints")

T = TypeVar("T")


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def only(futures: dict[object, Future[T]]) -> T:
    [future] = futures.values()
    return future.result(WITHIN_S)


def refusal(futures: dict[object, Future[object]]) -> int:
    with pytest.raises(KafkaException) as refused:
        only(futures)
    error: KafkaError = refused.value.args[0]
    return error.code()


def create(admin: AdminClient, topic: str, partitions: int = 1, **config: str) -> None:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    only(admin.create_topics([NewTopic(topic, partitions, BROKERS, config=settings)]))


def settings_of(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    return only(admin.describe_configs([ConfigResource(kind, name)]))


def test_a_topic_is_created_described_listed_and_deleted(admin: AdminClient, topic: str) -> None:
    create(admin, topic, 3, retention_ms="12345")
    described = only(admin.describe_topics(TopicCollection([topic])))
    assert [each.id for each in described.partitions] == [0, 1, 2]
    assert {each.leader.id for each in described.partitions} == set(range(BROKERS))
    assert [sorted(node.id for node in each.isr) for each in described.partitions] == [[*range(BROKERS)]] * 3
    assert not described.is_internal
    assert len(admin.list_topics(timeout=WITHIN_S).topics[topic].partitions) == 3
    assert settings_of(admin, ResourceType.TOPIC, topic)["retention.ms"].value == "12345"
    only(admin.delete_topics([topic]))
    assert topic not in admin.list_topics(timeout=WITHIN_S).topics
    assert refusal(admin.describe_topics(TopicCollection([topic]))) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_deleted_name_can_be_used_again(bootstrap: str, topic: str) -> None:
    for _ in range(2):
        admin = AdminClient({"bootstrap.servers": bootstrap})  # for one remembers a while who led the deleted topic
        create(admin, topic)
        producer = Producer({"bootstrap.servers": bootstrap})
        producer.produce(topic, b"v")
        assert producer.flush(WITHIN_S) == 0
        found = only(admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()}))
        assert found.offset == 1
        only(admin.delete_topics([topic]))


def test_replicas_can_be_placed_by_hand(admin: AdminClient, topic: str) -> None:
    only(admin.create_topics([NewTopic(topic, replica_assignment=[[0], [0]], num_partitions=2)]))
    assert len(admin.list_topics(timeout=WITHIN_S).topics[topic].partitions) == 2


def test_a_topic_that_is_only_checked_is_not_made(admin: AdminClient, topic: str) -> None:
    only(admin.create_topics([NewTopic(topic, 1, BROKERS)], validate_only=True))
    assert topic not in admin.list_topics(timeout=WITHIN_S).topics


def test_refused_topics(admin: AdminClient, topic: str) -> None:
    create(admin, topic)

    def code(*, name: str = "interop-refused", partitions: int = 1, replicas: int = 1, **config: str) -> int:
        return refusal(admin.create_topics([NewTopic(name, partitions, replicas, config=config)]))

    assert code(name=topic) == KafkaError.TOPIC_ALREADY_EXISTS
    assert code(name="a/b") == KafkaError.TOPIC_EXCEPTION
    assert code(name="x" * 250) == KafkaError.TOPIC_EXCEPTION
    assert code(name=topic.replace("-", "."), replicas=BROKERS + 1) == KafkaError.INVALID_REPLICATION_FACTOR
    assert code(**{"retention.ms": "soon"}) == KafkaError.INVALID_CONFIG
    assert code(**{"no.such.thing": "1"}) == KafkaError.INVALID_CONFIG
    assert refusal(admin.delete_topics(["interop-refused"])) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_partitions_are_added_and_never_taken_away(admin: AdminClient, topic: str) -> None:
    create(admin, topic, 2)
    only(admin.create_partitions([NewPartitions(topic, 5)]))
    until(lambda: len(admin.list_topics(timeout=WITHIN_S).topics[topic].partitions) == 5)
    for count in (5, 1):
        assert refusal(admin.create_partitions([NewPartitions(topic, count)])) == KafkaError.INVALID_PARTITIONS
    unknown = admin.create_partitions([NewPartitions("interop-refused", 5)])
    assert refusal(unknown) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_producer_finds_new_partitions(bootstrap: str, admin: AdminClient, topic: str) -> None:
    create(admin, topic)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"v", partition=0)
    assert producer.flush(WITHIN_S) == 0
    only(admin.create_partitions([NewPartitions(topic, 2)]))
    producer.list_topics(topic, timeout=WITHIN_S)
    producer.produce(topic, b"v", partition=1)
    assert producer.flush(WITHIN_S) == 0


def test_settings_of_a_topic(admin: AdminClient, topic: str) -> None:
    create(admin, topic, segment_bytes="2000000")

    def now(name: str) -> tuple[str, ConfigSource]:
        entry = settings_of(admin, ResourceType.TOPIC, topic)[name]
        return entry.value, ConfigSource(entry.source)

    def change(operation: AlterConfigOpType, name: str, value: str | None) -> ConfigResource:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        return ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])

    assert now("segment.bytes") == ("2000000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert now("cleanup.policy") == ("delete", ConfigSource.DEFAULT_CONFIG)
    only(admin.incremental_alter_configs([change(AlterConfigOpType.SET, "retention.ms", "1000")]))
    only(admin.incremental_alter_configs([change(AlterConfigOpType.APPEND, "cleanup.policy", "compact")]))
    assert now("retention.ms") == ("1000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert now("cleanup.policy") == ("delete,compact", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    only(admin.incremental_alter_configs([change(AlterConfigOpType.SUBTRACT, "cleanup.policy", "delete")]))
    only(admin.incremental_alter_configs([change(AlterConfigOpType.DELETE, "segment.bytes", None)]))
    assert now("cleanup.policy")[0] == "compact"
    assert now("segment.bytes") == ("1073741824", ConfigSource.DEFAULT_CONFIG)
    for name, value in (("retention.ms", "soon"), ("no.such.thing", "1"), ("cleanup.policy", "shred")):
        refused = admin.incremental_alter_configs([change(AlterConfigOpType.SET, name, value)])
        assert refusal(refused) == KafkaError.INVALID_CONFIG


@pytest.mark.filterwarnings("ignore:alter_configs:DeprecationWarning")
def test_the_old_way_of_altering_replaces_all(admin: AdminClient, topic: str) -> None:
    create(admin, topic, retention_ms="1000", segment_bytes="2000000")
    only(admin.alter_configs([ConfigResource(ResourceType.TOPIC, topic, set_config={"retention.ms": "2000"})]))
    settings = settings_of(admin, ResourceType.TOPIC, topic)
    assert (settings["retention.ms"].value, settings["segment.bytes"].is_default) == ("2000", True)


def test_settings_of_the_broker(admin: AdminClient) -> None:
    settings = settings_of(admin, ResourceType.BROKER, "0")
    assert settings["node.id" if "node.id" in settings else "broker.id"].is_read_only
    assert settings["num.partitions"].value == "1"

    def change(name: str, operation: AlterConfigOpType, value: str | None, broker: str = "0") -> ConfigResource:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        return ConfigResource(ResourceType.BROKER, broker, incremental_configs=[entry])

    only(admin.incremental_alter_configs([change("background.threads", AlterConfigOpType.SET, "11")]))
    changed = settings_of(admin, ResourceType.BROKER, "0")["background.threads"]
    assert (changed.value, ConfigSource(changed.source)) == ("11", ConfigSource.DYNAMIC_BROKER_CONFIG)
    only(admin.incremental_alter_configs([change("background.threads", AlterConfigOpType.DELETE, None)]))
    assert settings_of(admin, ResourceType.BROKER, "0")["background.threads"].is_default
    fixed = admin.incremental_alter_configs([change("log.dirs", AlterConfigOpType.SET, "/elsewhere")])
    assert refusal(fixed) in (KafkaError.INVALID_REQUEST, KafkaError.INVALID_CONFIG)


def test_settings_of_what_is_not_there(admin: AdminClient) -> None:
    nobody = admin.describe_configs([ConfigResource(ResourceType.TOPIC, "interop-refused")])
    assert refusal(nobody) == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.fixture
def ten(bootstrap: str, admin: AdminClient, new_topic: Callable[[], str]) -> TopicPartition:
    """A partition with ten records, the fourth of them the youngest."""
    topic = new_topic()
    create(admin, topic)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        time_ms = FIRST_TIMESTAMP_MS + (1000 if number == 3 else number)
        producer.produce(topic, b"%d" % number, partition=0, timestamp=time_ms)
    assert producer.flush(WITHIN_S) == 0
    return TopicPartition(topic, 0)


@pytest.mark.parametrize("isolation", list(IsolationLevel))
def test_listing_offsets(admin: AdminClient, ten: TopicPartition, isolation: IsolationLevel) -> None:
    def at(spec: OffsetSpec) -> tuple[int, int]:
        found = only(admin.list_offsets({ten: spec}, isolation_level=isolation))
        return found.offset, found.timestamp

    assert at(OffsetSpec.earliest()) == (0, -1)
    assert at(OffsetSpec.latest()) == (10, -1)
    assert at(OffsetSpec.max_timestamp()) == (3, FIRST_TIMESTAMP_MS + 1000)
    assert at(OffsetSpec.for_timestamp(FIRST_TIMESTAMP_MS + 2)) == (2, FIRST_TIMESTAMP_MS + 2)
    assert at(OffsetSpec.for_timestamp(FIRST_TIMESTAMP_MS + 5)) == (3, FIRST_TIMESTAMP_MS + 1000)
    assert at(OffsetSpec.for_timestamp(FIRST_TIMESTAMP_MS + 5000)) == (-1, -1)


def test_deleting_records(admin: AdminClient, ten: TopicPartition) -> None:
    deleted = only(admin.delete_records([TopicPartition(ten.topic, 0, 4)]))
    assert deleted.low_watermark == 4
    assert only(admin.list_offsets({ten: OffsetSpec.earliest()})).offset == 4
    beyond = admin.delete_records([TopicPartition(ten.topic, 0, 11)])
    assert refusal(beyond) == KafkaError.OFFSET_OUT_OF_RANGE
    assert only(admin.delete_records([TopicPartition(ten.topic, 0, -1)])).low_watermark == 10


def test_the_cluster(bootstrap: str, admin: AdminClient) -> None:
    cluster = admin.describe_cluster().result(WITHIN_S)
    assert {node.id: f"{node.host}:{node.port}" for node in cluster.nodes} == dict(enumerate(bootstrap.split(",")))
    assert cluster.controller.id in range(BROKERS)
    assert cluster.cluster_id == admin.list_topics(timeout=WITHIN_S).cluster_id
    assert cluster.authorized_operations is None


def test_what_one_may_do_is_said_when_asked(admin: AdminClient, topic: str) -> None:
    create(admin, topic)
    cluster = admin.describe_cluster(include_authorized_operations=True).result(WITHIN_S)
    described = only(admin.describe_topics(TopicCollection([topic]), include_authorized_operations=True))
    assert cluster.authorized_operations
    assert described.authorized_operations
