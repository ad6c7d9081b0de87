"""The znodes of Kafka: what Kafka 3.x wrote is read, and Headrace writes the same."""

import json
from uuid import UUID

import pytest

from headrace.coordination import paths, znodes
from headrace.coordination.interface import Create
from headrace.coordination.tree.znode_tree import ZnodeTree
from headrace.coordination.znodes import (
    BrokerRegistration,
    ClusterId,
    ConfigChange,
    ControllerRegistration,
    Endpoint,
    EntityConfig,
    LogDirFailure,
    MalformedZnodeError,
    PartitionSet,
    PartitionState,
    ProducerIdBlock,
    Reassignment,
    TopicAssignment,
)

PLAINTEXT = Endpoint("PLAINTEXT", "PLAINTEXT", "localhost", 9091)
TOPIC_ID = UUID("64e2ebf4-22cd-4234-96ef-4872207c7a05")

#: Content as a Kafka of 3.x writes it, and what it says.
KAFKA = [
    (
        '{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
        '"endpoints":["PLAINTEXT://localhost:9091"],"jmx_port":-1,"port":9091,"host":"localhost","version":5,'
        '"timestamp":"1707276552023"}',
        BrokerRegistration((PLAINTEXT,), 1707276552023),
    ),
    (
        '{"features":{"f":{"min_version":1,"max_version":3}},"listener_security_protocol_map":{"IN":"SSL"},'
        '"endpoints":["IN://[::1]:9093"],"jmx_port":9999,"port":-1,"host":null,"version":5,"timestamp":"1",'
        '"rack":"dc1"}',
        BrokerRegistration(
            (Endpoint("IN", "SSL", "::1", 9093),), 1, "dc1", 9999, {"f": {"min_version": 1, "max_version": 3}}
        ),
    ),
    (
        '{"removing_replicas":{},"partitions":{"0":[0]},"topic_id":"ZOLr9CLNQjSW70hyIHx6BQ","adding_replicas":{},'
        '"version":3}',
        TopicAssignment(TOPIC_ID, {0: (0,)}),
    ),
    (
        '{"removing_replicas":{"1":[2]},"partitions":{"0":[0,1],"1":[1,2,3]},"topic_id":"ZOLr9CLNQjSW70hyIHx6BQ",'
        '"adding_replicas":{"1":[3]},"version":3}',
        TopicAssignment(TOPIC_ID, {0: (0, 1), 1: (1, 2, 3)}, {1: (3,)}, {1: (2,)}),
    ),
    (
        '{"controller_epoch":33,"leader":102,"version":1,"leader_epoch":8,"isr":[102,103]}',
        PartitionState(102, 8, (102, 103), 33),
    ),
    (
        '{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":2,"isr":[1],"leader_recovery_state":1}',
        PartitionState(1, 2, (1,), 1, is_recovering=True),
    ),
    (
        '{"version":2,"brokerid":0,"timestamp":"1685460739018","kraftControllerEpoch":-1}',
        ControllerRegistration(0, 1685460739018),
    ),
    ('{"version":"1","id":"Sfr7YvlkRHSHrmSrwq9mug"}', ClusterId("Sfr7YvlkRHSHrmSrwq9mug")),
    ('{"version":1,"config":{"retention.ms":"100000"}}', EntityConfig({"retention.ms": "100000"})),
    ('{"version":2,"entity_path":"topics/t"}', ConfigChange("topics/t")),
    (
        '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}',
        Reassignment({("t", 0): (1, 2)}),
    ),
    (
        '{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"t","partition":1}]}',
        PartitionSet.of([("t", 1), ("t", 0)]),
    ),
    ('{"version":1,"broker":3,"event":1}', LogDirFailure(3)),
    ('{"version":1,"broker":0,"block_start":"0","block_end":"999"}', ProducerIdBlock(0, 0, 999)),
]


@pytest.mark.parametrize(("text", "value"), KAFKA)
def test_what_kafka_wrote_is_read_and_written_the_same(text, value):
    assert type(value).from_json(text.encode()) == value
    assert json.loads(value.to_json()) == json.loads(text)
    assert b" " not in value.to_json()


def test_older_versions_are_read():
    old = b'{"version":1,"partitions":{"1":[101,103],"0":[103,102]}}'
    assert TopicAssignment.from_json(old) == TopicAssignment(None, {1: (101, 103), 0: (103, 102)})
    assert b"topic_id" not in TopicAssignment.from_json(old).to_json()
    controller = b'{"version":1,"brokerid":101,"timestamp":"1614570663255"}'
    assert ControllerRegistration.from_json(controller) == ControllerRegistration(101, 1614570663255)
    broker = b'{"version":2,"host":"h","port":9092,"jmx_port":1,"timestamp":"2","endpoints":["SSL://h:9092"]}'
    assert BrokerRegistration.from_json(broker).endpoints == (Endpoint("SSL", "SSL", "h", 9092),)
    assert EntityConfig.from_json(b"") == EntityConfig({})


@pytest.mark.parametrize("kind", sorted({type(value) for _, value in KAFKA}, key=lambda kind: kind.__name__))
@pytest.mark.parametrize("data", [b"[]", b"\xff", b"{", b'{"version":1,"config":3,"partitions":[3],"topic_id":7}'])
def test_what_is_something_else_is_refused(kind, data):
    with pytest.raises(MalformedZnodeError):
        kind.from_json(data)


def test_ids_are_base64_for_urls():
    assert znodes.encode_uuid(TOPIC_ID) == "ZOLr9CLNQjSW70hyIHx6BQ"
    assert znodes.decode_uuid("ZOLr9CLNQjSW70hyIHx6BQ") == TOPIC_ID
    assert not znodes.encode_uuid(znodes.random_uuid()).startswith("-")
    for wrong in ("", "ZOLr9CLNQjSW70hyIHx6", "ZOLr9CLNQjSW70hyIHx6B!", "é"):
        with pytest.raises(MalformedZnodeError):
            znodes.decode_uuid(wrong)


def test_the_controller_epoch_is_digits():
    assert znodes.encode_controller_epoch(12) == b"12"
    assert znodes.decode_controller_epoch(b"12") == 12
    with pytest.raises(MalformedZnodeError):
        znodes.decode_controller_epoch(b"x")


def test_the_paths():
    assert paths.broker_path(3) == "/brokers/ids/3"
    assert paths.topic_path("t") == "/brokers/topics/t"
    assert paths.partitions_path("t") == "/brokers/topics/t/partitions"
    assert paths.partition_path("t", 1) == "/brokers/topics/t/partitions/1"
    assert paths.partition_state_path("t", 1) == "/brokers/topics/t/partitions/1/state"
    assert paths.topic_config_path("t") == "/config/topics/t"
    assert paths.broker_config_path(1) == "/config/brokers/1"
    assert paths.broker_config_path(None) == "/config/brokers/<default>"
    assert paths.delete_topic_path("t") == "/admin/delete_topics/t"
    assert paths.CONFIG_CHANGE_PREFIX == "/config/changes/config_change_"


def test_the_persistent_paths_can_be_made_in_their_order():
    tree = ZnodeTree()
    opened = tree.prepare_open_session(1_000, 0)
    tree.apply(opened)
    tree.apply(tree.prepare(opened.session_id, [Create(path) for path in paths.PERSISTENT_PATHS], 0))
    assert tree.children("/config") == [
        "brokers",
        "changes",
        "client-metrics",
        "clients",
        "groups",
        "ips",
        "topics",
        "users",
    ]
