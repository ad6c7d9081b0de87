"""Every API asks the authorizer, for what the table says; and a client without rights gets and changes nothing.

Each request is made from its schema: all texts are the name of one topic, one group and one transactional id, all lists
have one element. So a new API is tried here without a line of its own.
"""

from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import pytest
from broker_harness import Client, batch, on_loop, unique

from headrace import Broker
from headrace.broker.authorization.api_table import FOR_EVERYBODY, NEEDS
from headrace.broker.lone.lone_broker import LoneBroker
from headrace.broker.network.handler_binding import served_apis
from headrace.protocol.api import Api, versions_of
from headrace.protocol.errors import ErrorCode
from headrace.protocol.kio import load_request_schema
from headrace.security.acls import AclOperation, ResourceType
from headrace.testing.raw_client import ClosedByPeer, decode_response

NAME, HIDDEN = "asked-for", "never-asked-for"
SERVED = served_apis(in_cluster=True)
#: A client without a login cannot use tokens at all, so the tests of tokens check their rights.
TOKENS = {Api.CREATE_DELEGATION_TOKEN, Api.DESCRIBE_DELEGATION_TOKEN}
CHECKED = [api for api in SERVED if api not in FOR_EVERYBODY and api not in TOKENS]
#: Questions that need more than a topic, a group and a transactional id: an open transaction, a member's assignment.
#: The matrix of answers of Apache Kafka has them.
NOT_TRIED = {
    Api.DESCRIBE_TRANSACTIONS: {(AclOperation.DESCRIBE, ResourceType.TOPIC)},
    Api.CONSUMER_GROUP_DESCRIBE: {(AclOperation.DESCRIBE, ResourceType.TOPIC)},
}
DENIALS = {
    ErrorCode.topic_authorization_failed,
    ErrorCode.group_authorization_failed,
    ErrorCode.cluster_authorization_failed,
    ErrorCode.transactional_id_authorization_failed,
    ErrorCode.delegation_token_authorization_failed,
}
#: Fields whose values matter: which resource a setting belongs to, and what makes a request valid at all.
FIELDS = {
    "resource_type": 2, "resource_types": [2], "resource_type_filter": 1, "pattern_type_filter": 1, "operation": 3,
    "permission_type": 3, "resource_pattern_type": 3, "acks": -1, "key_type": 0, "election_type": 0, "path": "/tmp",
    "endpoint_type": 1, "coordinator_keys": [NAME], "num_partitions": 1, "replication_factor": 1, "assignments": [],
    "session_epoch": -1, "producer_epoch": 0, "isolation_level": 0, "replica_id": -1, "member_epoch": 0,
    "include_cluster_authorized_operations": True, "include_topic_authorized_operations": True,
    "include_authorized_operations": True, "allow_auto_topic_creation": True, "owner_principal_type": "User",
    "owner_principal_name": "somebody",
    "hmac": b"h", "subscribed_topic_regex": None, "state_filters": [], "types_filter": [], "states_filter": [],
    "transactional_id_pattern": None, "configuration_keys": None, "enable2_pc": False, "cursor": None,
    "rebalance_timeout": 1000, "response_partition_limit": 100, "iterations": 4096, "mechanism": 1,
    "replica_state": {"replica_id": -1, "replica_epoch": -1}, "owners": None,
}  # fmt: skip
#: APIs that tell everybody something; the test checks these answers by their fields.
OPEN_FIELDS = {Api.METADATA: {"brokers"}, Api.DESCRIBE_CLUSTER: {"brokers"}}


class Recorder:
    """Notes what it was asked. Denies everything, or one right."""

    def __init__(self):
        self.asked = set()
        self.denied = None

    def is_allowed(self, connection, operation, resource_type, name="", *, log_allowed=True, **_):
        if log_allowed:  # otherwise the question is which operations the client may do, and grants nothing
            self.asked.add((operation, resource_type))
        return self.denied is not None and (operation, resource_type) != self.denied


@pytest.fixture(scope="module")
def broker():
    """One broker for all tests: some requests change it, and none of the tests depends on more than the two topics."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LoneBroker, "serves_control_apis", True)
        config = {
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:ANONYMOUS",
            "group.initial.rebalance.delay.ms": "0",
        }
        with Broker(config=config) as broker:
            with Client(broker.bootstrap_servers) as client:
                for name in (NAME, HIDDEN):
                    client.create_topic(name)
                    prepare(client, name)
            yield broker


def prepare(client, name):
    """A topic with a record, a group with an offset, and a transaction."""
    client.produce(name, batch(3))
    topic = {"name": name, "partitions": [OFFSET]}
    fields = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    client.ask(Api.FIND_COORDINATOR, 3, key=name, key_type=0)
    committed = client.ask(Api.OFFSET_COMMIT, 8, group_id=name, topics=[topic], **fields)
    assert committed.topics[0].partitions[0].error_code == 0
    started = client.ask(Api.INIT_PRODUCER_ID, 1, transactional_id=name, transaction_timeout=60_000)
    assert started.error_code == 0


OFFSET = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": None}


@pytest.fixture
def recorder(broker, monkeypatch):
    recorder = Recorder()
    authorizer = broker.core.services.authorizer
    monkeypatch.setattr(authorizer, "is_allowed", recorder.is_allowed)
    monkeypatch.setattr(authorizer, "is_allowed_on_any", recorder.is_allowed)
    return recorder


# -- requests from schemas


def value_for(name, hint, topic_id, overrides):
    if name in overrides:
        return overrides[name]
    if name in FIELDS:
        return FIELDS[name]
    return _by_type(name, hint, topic_id, overrides)


def _by_type(name, hint, topic_id, overrides):
    if get_origin(hint) in (Union, UnionType):
        inner = [each for each in get_args(hint) if each is not type(None)]
        if get_origin(inner[0]) is tuple or not is_dataclass(inner[0]):
            return _by_type(name, inner[0], topic_id, overrides)
        return None
    if get_origin(hint) is tuple:
        return [_by_type(name, get_args(hint)[0], topic_id, overrides)]
    if is_dataclass(hint):
        return request_fields(hint, topic_id, overrides)
    if name == "records":
        return batch(1)
    kind = next(
        (each for each in (bool, int, str, bytes, UUID, float) if isinstance(hint, type) and issubclass(hint, each)),
        None,
    )
    return {bool: False, int: 0, str: NAME, bytes: b"", UUID: topic_id, float: 0.0, None: 0}[kind]


def request_fields(schema, topic_id, overrides):
    hints = get_type_hints(schema)
    return {
        field.name: value_for(field.name, hints[field.name], topic_id, overrides)
        for field in fields(schema)
        if not field.name.startswith("__")
    }


def variants_of(api, version):
    by_id_since = {Api.METADATA: 12, Api.DELETE_TOPICS: 6}.get(api, 0)
    return [each for each in VARIANTS.get(api, ("plain",)) if each != "by_id" or version >= by_id_since]


def ask(broker, api, version, variant, topic_id):
    """Returns the frame of the answer, or None if the broker closed the connection."""
    given = request_fields(load_request_schema(api, version), topic_id, overrides_for(api, version, variant))
    with Client(broker.bootstrap_servers) as client:
        client.send(api, version, **given)
        try:
            return client.read_frame()
        except ClosedByPeer:
            return None


def overrides_for(api, version, variant):
    """A topic is named either by its name or by its id; the variants ask for everything, or as a follower."""
    all_since = 2 if api is Api.OFFSET_FETCH else 1 if api is Api.METADATA else 0
    by_id = {"name": None, "topic": None} if api in (Api.DELETE_TOPICS, Api.METADATA) else {}
    return {
        "plain": {"topic_id": None} if api in (Api.DELETE_TOPICS, Api.METADATA) else {},
        "by_id": by_id,
        "all": {"topics": None if version >= all_since else [], "topic_partitions": None},
        "transaction": {"key_type": 1},
        "missing": {"name": unique("not-there"), "topic_id": None, "configs": []},
        "follower": {"replica_id": 1, "replica_state": {"replica_id": 1, "replica_epoch": 1}},
        "idempotent": {"transactional_id": None},
        "broker": {"resource_type": 4, "resource_name": ""},
        "group": {"resource_type": 32},
        "two_phase": {"enable2_pc": True},
    }[variant]


VARIANTS = {
    Api.METADATA: ("plain", "by_id", "all", "missing"),
    Api.DELETE_TOPICS: ("plain", "by_id"),
    Api.CREATE_TOPICS: ("plain", "missing"),
    Api.FIND_COORDINATOR: ("plain", "transaction"),
    Api.FETCH: ("plain", "follower"),
    Api.INIT_PRODUCER_ID: ("plain", "idempotent", "two_phase"),
    Api.DESCRIBE_CONFIGS: ("plain", "broker", "group"),
    Api.ALTER_CONFIGS: ("plain", "broker", "group"),
    Api.INCREMENTAL_ALTER_CONFIGS: ("plain", "broker", "group"),
    Api.DESCRIBE_LOG_DIRS: ("plain", "all"),
    Api.OFFSET_FETCH: ("plain", "all"),
    Api.LIST_PARTITION_REASSIGNMENTS: ("plain", "all"),
    Api.ELECT_LEADERS: ("plain", "all"),
}


# -- answers


def elements_of(entity, without=()):
    return [
        each
        for field in fields(entity)
        if field.name not in without and isinstance(value := getattr(entity, field.name), tuple)
        for each in value
        if is_dataclass(each)
    ]


def is_denied(entity, without=()):
    """Whether the entity has an error of rights, or all of its elements have."""
    if any(getattr(entity, field.name) in DENIALS for field in fields(entity) if field.name.endswith("error_code")):
        return True
    elements = elements_of(entity, without)
    return bool(elements) and all(map(is_denied, elements))


def assert_nothing(api, answer):
    without = OPEN_FIELDS.get(api, ())
    assert is_denied(answer, without) or not elements_of(answer, without), answer
    assert HIDDEN not in repr(answer)


def state_of(broker):
    core = broker.core
    return (
        sorted(topic.name for topic in core.metadata),
        {log.topic: log.next_offset for log in core.logs.all() if not log.topic.startswith("__")},
        sorted(group for shard in core.services.groups.coordinator.shards() for group in shard.groups),
        sorted(core.services.group_configs),
        len(core.services.authorizer.patterns()),
        dict(core.config.dynamic_default),
        [len(topic.partitions) for topic in core.metadata],
    )


def test_every_served_api_is_in_the_table():
    assert {api.label for api in SERVED} - {api.label for api in (*NEEDS, *FOR_EVERYBODY)} == set()
    assert NEEDS.keys() & FOR_EVERYBODY.keys() == set()


@pytest.mark.parametrize("api", CHECKED, ids=lambda api: api.label)
def test_a_client_without_rights_gets_and_changes_nothing(broker, recorder, api):
    recorder.denied = ()
    topic_id = on_loop(broker, topic_of, broker) or created(broker)
    recorder.denied = None
    before = on_loop(broker, state_of, broker)
    asked: set[Any] = set()
    for version in versions_of(api):
        for variant in variants_of(api, version):
            recorder.asked.clear()
            frame = ask(broker, api, version, variant, topic_id)
            assert recorder.asked, f"v{version} {variant} asks for nothing"
            asked |= recorder.asked
            if frame is not None:
                assert_nothing(api, decode_response(api, version, frame))
                assert variant != "by_id" or NAME.encode() not in frame
    assert asked <= {(need.operation, need.resource_type) for need in NEEDS[api]}
    assert on_loop(broker, state_of, broker) == before


@pytest.mark.parametrize("api", CHECKED, ids=lambda api: api.label)
def test_the_table_has_nothing_that_the_handler_does_not_ask_for(broker, recorder, api):
    """Some questions come only if the answer to another one was yes: so one right at a time is missing."""
    wanted = {(need.operation, need.resource_type) for need in NEEDS[api]}
    asked: set[Any] = set()
    for denied in sorted(wanted):
        for version in versions_of(api) if api is Api.METADATA else {versions_of(api)[0], versions_of(api)[-1]}:
            for variant in variants_of(api, version):
                recorder.denied = ()
                topic_id = on_loop(broker, topic_of, broker) or created(broker)
                recorder.asked.clear()
                recorder.denied = denied
                ask(broker, api, version, variant, topic_id)
                asked |= recorder.asked
    assert wanted - asked <= NOT_TRIED.get(api, set())
    assert asked <= wanted


def topic_of(broker):
    topic = broker.core.metadata.get(NAME)
    return None if topic is None else topic.topic_id


def created(broker):
    """Some of these requests delete the topic."""
    with Client(broker.bootstrap_servers) as client:
        client.create_topic(NAME)
    return on_loop(broker, topic_of, broker)
