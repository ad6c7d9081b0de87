"""The admin client of kafka-python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from uuid import UUID

import pytest
from interop_brokers import BROKERS, until
from interop_records import FIRST_TIMESTAMP_MS, WITHIN_S
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import AlterConfigOp, ConfigResource
from kafka.errors import (
    IncompatibleBrokerVersion,
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    InvalidUpdateVersionError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.consumer.offsets import OffsetSpec

pytestmark = pytest.mark.usefixtures("client_complaints")


@pytest.fixture
def admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        yield admin


def create(admin: KafkaAdminClient, topic: str, partitions: int = 1, replicas: int = BROKERS, **config: str) -> None:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    wanted = {"num_partitions": partitions, "replication_factor": replicas, "configs": settings}
    admin.create_topics({topic: wanted})


def settings_of(admin: KafkaAdminClient, kind: str, name: str, which: str = "all") -> dict[str, dict[str, object]]:
    return admin.describe_configs([ConfigResource(kind, name)], config_filter=which)[kind][name]


def test_a_topic_is_created_described_listed_and_deleted(admin: KafkaAdminClient, topic: str) -> None:
    create(admin, topic, 3, retention_ms="12345")
    assert topic in admin.list_topics()
    [described] = admin.describe_topics([topic])
    assert (described["name"], described["error_code"], described["is_internal"]) == (topic, 0, False)
    found = [(each["partition_index"], each["leader_id"], each["isr_nodes"]) for each in described["partitions"]]
    assert [(index, sorted(isr)) for index, _, isr in sorted(found)] == [
        (index, [*range(BROKERS)]) for index in range(3)
    ]
    assert {leader for _, leader, _ in found} == set(range(BROKERS))
    assert admin.describe_topics([UUID(described["topic_id"])])[0]["name"] == topic
    assert settings_of(admin, "topic", topic, "modified")["retention.ms"]["value"] == "12345"
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()


def test_what_was_made_is_told(admin: KafkaAdminClient, topic: str) -> None:
    [made] = admin.create_topics([topic])["topics"]
    assert (made["num_partitions"], made["replication_factor"]) == (1, BROKERS)
    assert made["configs"]["cleanup.policy"]["value"] == "delete"


def test_partitions_page_by_page(admin: KafkaAdminClient, topic: str) -> None:
    create(admin, topic, 5)
    first = admin.describe_topic_partitions([topic], response_partition_limit=3)
    assert [each["partition_index"] for each in first["topics"][0]["partitions"]] == [0, 1, 2]
    rest = admin.describe_topic_partitions([topic], cursor=first["next_cursor"])
    assert [each["partition_index"] for each in rest["topics"][0]["partitions"]] == [3, 4]
    assert rest["next_cursor"] is None


def test_refused_topics(admin: KafkaAdminClient, topic: str) -> None:
    create(admin, topic)
    with pytest.raises(TopicAlreadyExistsError):
        create(admin, topic)
    with pytest.raises(InvalidTopicError):
        create(admin, "a/b")
    with pytest.raises(InvalidReplicationFactorError):
        create(admin, "interop-refused", replicas=BROKERS + 1)
    with pytest.raises(InvalidPartitionsError):
        create(admin, "interop-refused", partitions=0)
    with pytest.raises(InvalidConfigurationError):
        create(admin, "interop-refused", retention_ms="soon")
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics(["interop-refused"])
    admin.create_topics(["interop-refused"], validate_only=True)
    assert "interop-refused" not in admin.list_topics()


def test_partitions_are_added_and_never_taken_away(admin: KafkaAdminClient, topic: str) -> None:
    create(admin, topic, 2)
    admin.create_partitions({topic: 5})
    until(lambda: len(admin.describe_topics([topic])[0]["partitions"]) == 5)
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({topic: 1})
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.create_partitions({"interop-refused": 5})


@pytest.mark.parametrize("incremental", [True, False])
def test_settings_of_a_topic(admin: KafkaAdminClient, topic: str, incremental: bool) -> None:
    create(admin, topic, segment_bytes="2000000")

    def alter(**configs: object) -> str:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        resource = ConfigResource("topic", topic, named)
        answers = admin.alter_configs([resource], incremental=incremental, raise_on_unknown=False)
        answer: str = answers["topic"][topic]
        return answer

    assert alter(retention_ms="1000") == "OK"
    modified = settings_of(admin, "topic", topic, "modified")
    assert {name: entry["value"] for name, entry in modified.items()} == {
        "segment.bytes": "2000000",
        "retention.ms": "1000",
    }
    assert {entry["config_source"] for entry in modified.values()} == {"DYNAMIC_TOPIC_CONFIG"}
    assert "InvalidConfig" in alter(retention_ms="soon")
    assert "InvalidConfig" in alter(no_such_thing="1")
    if incremental:
        assert (
            alter(cleanup_policy=(AlterConfigOp.APPEND, "compact"), segment_bytes=(AlterConfigOp.DELETE, None)) == "OK"
        )
        settings = settings_of(admin, "topic", topic)
        assert (settings["cleanup.policy"]["value"], settings["segment.bytes"]["config_source"]) == (
            "delete,compact",
            "DEFAULT_CONFIG",
        )


def test_settings_of_the_broker(admin: KafkaAdminClient) -> None:
    assert settings_of(admin, "broker", "0")["num.partitions"]["value"] == "1"
    answers = admin.alter_configs([ConfigResource("broker", "0", {"log.cleaner.threads": "2"})])
    assert answers == {"broker": {"0": "OK"}}
    entry = settings_of(admin, "broker", "0")["log.cleaner.threads"]
    assert (entry["value"], entry["config_source"]) == ("2", "DYNAMIC_BROKER_CONFIG")
    admin.reset_configs([ConfigResource("broker", "0", ["log.cleaner.threads"])])
    assert settings_of(admin, "broker", "0")["log.cleaner.threads"]["config_source"] == "DEFAULT_CONFIG"


def test_synonyms_say_where_a_value_would_come_from(admin: KafkaAdminClient, topic: str) -> None:
    create(admin, topic, max_message_bytes="2000")
    wanted = ConfigResource("topic", topic, ["max.message.bytes"])
    [found] = admin.describe_configs([wanted], include_synonyms=True).values()
    assert [
        (each["name"], each["value"], each["source"]) for each in found[topic]["max.message.bytes"]["synonyms"]
    ] == [
        ("max.message.bytes", "2000", "DYNAMIC_TOPIC_CONFIG"),
        ("message.max.bytes", "1048588", "DEFAULT_CONFIG"),
    ]


@pytest.fixture
def ten(bootstrap: str, admin: KafkaAdminClient, new_topic: Callable[[], str]) -> TopicPartition:
    """A partition with ten records, the fourth of them the youngest."""
    topic = new_topic()
    create(admin, topic)
    with closing(KafkaProducer(bootstrap_servers=bootstrap)) as producer:
        for number in range(10):
            time_ms = FIRST_TIMESTAMP_MS + (1000 if number == 3 else number)
            producer.send(topic, b"%d" % number, timestamp_ms=time_ms).get(WITHIN_S)
    return TopicPartition(topic, 0)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_listing_offsets(admin: KafkaAdminClient, ten: TopicPartition, isolation: str) -> None:
    def at(spec: int) -> tuple[int, int]:
        found = admin.list_partition_offsets({ten: spec}, isolation_level=isolation)[ten]
        return found.offset, found.timestamp

    assert at(OffsetSpec.EARLIEST) == at(OffsetSpec.EARLIEST_LOCAL) == (0, -1)
    assert at(OffsetSpec.LATEST) == (10, -1)
    assert at(OffsetSpec.MAX_TIMESTAMP) == (3, FIRST_TIMESTAMP_MS + 1000)
    assert at(OffsetSpec.LATEST_TIERED) == (-1, -1)
    assert at(FIRST_TIMESTAMP_MS + 2) == (2, FIRST_TIMESTAMP_MS + 2)
    assert at(FIRST_TIMESTAMP_MS + 5000) == (-1, -1)


def test_deleting_records(admin: KafkaAdminClient, ten: TopicPartition) -> None:
    assert admin.delete_records({ten: 4})[ten]["low_watermark"] == 4
    assert admin.list_partition_offsets({ten: OffsetSpec.EARLIEST})[ten].offset == 4
    with pytest.raises(OffsetOutOfRangeError):
        admin.delete_records({ten: 11})
    assert admin.delete_records({ten: -1})[ten]["low_watermark"] == 10


def test_the_cluster(bootstrap: str, admin: KafkaAdminClient) -> None:
    cluster = admin.describe_cluster()
    found = {node["broker_id"]: f"{node['host']}:{node['port']}" for node in cluster["brokers"]}
    assert found == dict(enumerate(bootstrap.split(",")))
    assert cluster["controller_id"] in found
    assert cluster["cluster_id"]


def test_log_dirs(admin: KafkaAdminClient, ten: TopicPartition) -> None:
    answers = admin.describe_log_dirs()
    assert len(answers) == BROKERS
    for answer in answers:
        [folder] = answer["log_dirs"]
        sizes = {topic["name"]: [each["partition_size"] for each in topic["partitions"]] for topic in folder["topics"]}
        assert folder["error_code"] == 0
        assert sizes[ten.topic][0] > 0


def test_producers_of_a_partition(admin: KafkaAdminClient, ten: TopicPartition) -> None:
    [state] = admin.describe_producers([ten])[ten].active_producers
    assert (state.producer_id >= 0, state.last_sequence) == (True, 9)


def test_features_have_fixed_levels_and_there_is_no_quorum(admin: KafkaAdminClient) -> None:
    """A cluster with ZooKeeper has no quorum. The client says that the broker does not support the request."""
    assert admin.describe_features()["group.version"]["finalized"] == (1, 1)
    assert admin.update_features({"group.version": 1}) == {"group.version": "OK"}
    with pytest.raises(InvalidUpdateVersionError, match="always enabled at 2"):
        admin.update_features({"transaction.version": 9})
    with pytest.raises(IncompatibleBrokerVersion, match="DescribeQuorum"):
        admin.describe_metadata_quorum()
