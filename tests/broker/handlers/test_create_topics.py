"""CreateTopics: what is made, what is only checked, what is refused."""

import pytest
from broker_harness import TOPIC, Client, all_versions, unique

from headrace import Broker
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode


def new(name=None, partitions=1, factor=1, assignments=(), **configs):
    return {
        "name": unique() if name is None else name,
        "num_partitions": partitions,
        "replication_factor": factor,
        "assignments": [
            {"partition_index": index, "broker_ids": brokers} for index, brokers in dict(assignments).items()
        ],
        "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }


def create(client, *topics, version=7, validate_only=False):
    return client.ask(Api.CREATE_TOPICS, version, topics=topics, timeout=10_000, validate_only=validate_only).topics


def code_of(client, *topics, **fields):
    (answer,) = create(client, *topics, **fields)
    return answer.error_code


@pytest.mark.parametrize("version", all_versions(Api.CREATE_TOPICS))
def test_every_version(client, version):
    wanted = new(partitions=3, retention_ms="1234")
    (answer,) = create(client, wanted, version=version)
    assert (answer.error_code, answer.name, answer.error_message) == (0, wanted["name"], None)
    client.settle(wanted["name"], 3)
    if version >= 5:
        assert (answer.num_partitions, answer.replication_factor) == (3, 1)
        configs = {config.name: config for config in answer.configs}
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("1234", 1)
        assert configs["segment.bytes"].value == "1073741824"
    if version >= 7:
        assert answer.topic_id == client.id_of(wanted["name"])
    assert len(client.metadata([wanted["name"]]).topics[0].partitions) == 3


def test_defaults(client):
    (answer,) = create(client, new(partitions=-1, factor=-1))
    assert (answer.error_code, answer.num_partitions, answer.replication_factor) == (0, 1, 1)


def test_only_a_check(client):
    wanted = new(partitions=2)
    (answer,) = create(client, wanted, validate_only=True)
    assert (answer.error_code, answer.num_partitions) == (0, 2)
    assert client.metadata([wanted["name"]]).topics[0].error_code == ErrorCode.unknown_topic_or_partition
    assert code_of(client, new(partitions=0), validate_only=True) == ErrorCode.invalid_partitions


def test_one_that_exists(client, topic):
    assert code_of(client, new(topic)) == ErrorCode.topic_already_exists
    assert code_of(client, new(topic), validate_only=True) == ErrorCode.topic_already_exists


def test_one_that_is_named_twice(client):
    twice, once = new(), new()
    answers = create(client, twice, twice, once)
    codes = {answer.name: answer.error_code for answer in answers}
    assert codes == {twice["name"]: ErrorCode.invalid_request, once["name"]: 0}
    assert len(answers) == 2


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "x" * 250, "ä"])
def test_bad_names(client, name):
    assert code_of(client, new(name)) == ErrorCode.invalid_topic_exception


def test_a_bad_name_is_said_before_anything_else(client):
    assert code_of(client, new("a b", assignments={0: [9]}, nonsense="1")) == ErrorCode.invalid_topic_exception


def test_the_longest_name(client):
    assert code_of(client, new(unique("x" * 200).ljust(249, "y"))) == 0


def test_names_that_collide_in_metrics(client):
    name = unique()
    assert code_of(client, new(f"{name}.b")) == 0
    assert code_of(client, new(f"{name}_b")) == ErrorCode.invalid_topic_exception
    assert code_of(client, new(f"{name}-b")) == 0


@pytest.mark.parametrize("count", [0, -2])
def test_bad_partition_counts(client, count):
    assert code_of(client, new(partitions=count)) == ErrorCode.invalid_partitions


@pytest.mark.parametrize("factor", [0, 2, -2])
def test_bad_replication_factors(client, factor):
    assert code_of(client, new(factor=factor)) == ErrorCode.invalid_replication_factor


def test_an_assignment(client):
    (answer,) = create(client, new(partitions=-1, factor=-1, assignments={0: [0], 1: [0]}))
    assert (answer.error_code, answer.num_partitions, answer.replication_factor) == (0, 2, 1)


@pytest.mark.parametrize(
    "assignments", [{1: [0]}, {0: [0], 2: [0]}, {0: [7]}, {0: [0, 0]}, {0: []}], ids=lambda given: str(given)
)
def test_bad_assignments(client, assignments):
    wanted = new(partitions=-1, factor=-1, assignments=assignments)
    assert code_of(client, wanted) == ErrorCode.invalid_replica_assignment


@pytest.mark.parametrize("numbers", [(1, -1), (-1, 1), (1, 1)])
def test_an_assignment_beside_numbers(client, numbers):
    wanted = new(partitions=numbers[0], factor=numbers[1], assignments={0: [0]})
    assert code_of(client, wanted) == ErrorCode.invalid_request


def test_a_partition_that_is_assigned_twice(client):
    wanted = new(partitions=-1, factor=-1)
    wanted["assignments"] = [{"partition_index": 0, "broker_ids": [0]}] * 2
    assert code_of(client, wanted) == ErrorCode.invalid_replica_assignment


@pytest.mark.parametrize(
    "configs",
    [{"retention_ms": "soon"}, {"no_such_setting": "1"}, {"cleanup_policy": "shred"}, {"segment_bytes": "-1"}],
    ids=lambda configs: str(configs),
)
def test_bad_configs(client, configs):
    wanted = new(**configs)
    (answer,) = create(client, wanted)
    assert answer.error_code == ErrorCode.invalid_config
    assert answer.error_message
    assert client.metadata([wanted["name"]]).topics[0].error_code == ErrorCode.unknown_topic_or_partition


def test_a_config_without_a_value(client):
    assert code_of(client, new(retention_ms=None)) == ErrorCode.invalid_config


def test_one_fails_alone(client):
    answers = create(client, new(), new(partitions=0))
    assert sorted(answer.error_code for answer in answers) == [0, ErrorCode.invalid_partitions]


def test_of_many_who_create_the_same_one_succeeds(client, address):
    wanted = new(partitions=50)
    clients = [Client(address) for _ in range(5)]
    for each in clients:
        each.send(Api.CREATE_TOPICS, 7, topics=[wanted], timeout=10_000, validate_only=False)
    codes = sorted(each.receive().topics[0].error_code for each in clients)
    for each in clients:
        each.close()
    assert codes == [0] + [ErrorCode.topic_already_exists] * 4


def test_a_created_topic_can_be_used_at_once(client, ours):
    wanted = new()
    create(client, wanted)
    assert client.produce(wanted["name"]).error_code == 0


def test_defaults_are_the_brokers(ours):
    with Broker(config={"num.partitions": 5}) as broker, Client(broker.bootstrap_servers) as client:
        (answer,) = create(client, new(partitions=-1, factor=-1))
        assert answer.num_partitions == 5


def test_configs_are_kept(client):
    wanted = new(retention_ms="777")
    create(client, wanted)
    client.settle(wanted["name"])
    assert client.configs(TOPIC, wanted["name"], "retention.ms")["retention.ms"].value == "777"


def test_a_request_makes_a_bounded_number_of_partitions(client):
    """As in Kafka: of the whole request, by counts and by assignments."""

    def codes(*topics):
        given = [
            {"num_partitions": -1, "replication_factor": -1, "assignments": (), "configs": (), **one} for one in topics
        ]
        answer = client.ask(Api.CREATE_TOPICS, 7, topics=given, timeout=1000, validate_only=True)
        return [topic.error_code for topic in answer.topics]

    within, beyond = unique(), unique()
    assert codes({"name": within, "num_partitions": 10_000, "replication_factor": 1}) == [0]
    many = {"name": beyond, "num_partitions": 10_001, "replication_factor": 1}
    assert codes(many) == [ErrorCode.policy_violation]
    assert codes({"name": within}, {**many, "num_partitions": 10_000}) == [ErrorCode.policy_violation] * 2
    assignments = [{"partition_index": index, "broker_ids": [0]} for index in range(10_001)]
    assert codes({"name": beyond, "assignments": assignments}) == [ErrorCode.policy_violation]
