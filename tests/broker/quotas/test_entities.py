"""Entities and limits: Kafka's rules, paths, and texts."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.quotas.entities import (
    CLIENT_KEYS,
    DEFAULT,
    IP_KEYS,
    Entity,
    check_limit,
    entity_of,
    entity_of_path,
    limits_of,
    parts_of,
    path_of,
    text_of,
)
from headrace.coordination.znodes import EntityConfig
from headrace.protocol.errors import InvalidRequest

USER = Entity(user="alice")
names = st.text(st.characters(codec="utf-8"), min_size=1) | st.just(DEFAULT)
entities = (
    names.map(lambda name: Entity(user=name))
    | names.map(lambda name: Entity(client_id=name))
    | st.tuples(names, names).map(lambda pair: Entity(*pair))
    | names.map(lambda name: Entity(ip=name))
)


@given(entities)
def test_an_entity_is_the_same_after_its_way_through_the_tree_and_the_protocol(entity):
    assert entity_of_path(path_of(entity)) == entity
    assert entity_of(parts_of(entity)) == entity


@pytest.mark.parametrize(
    ("entity", "path"),
    [
        (Entity(user="alice"), "users/alice"),
        (Entity(user=DEFAULT), "users/<default>"),
        (Entity(user="<default>"), "users/%3Cdefault%3E"),
        (Entity(user="CN=a b,O=ä*~"), "users/CN%3Da%20b%2CO%3D%C3%A4%2A%7E"),
        (Entity(user="alice", client_id="app/1"), "users/alice/clients/app%2F1"),
        (Entity(user=DEFAULT, client_id=DEFAULT), "users/<default>/clients/<default>"),
        (Entity(client_id="app"), "clients/app"),
        (Entity(ip="10.0.0.1"), "ips/10.0.0.1"),
        (Entity(ip="::1"), "ips/%3A%3A1"),
        (Entity(ip=DEFAULT), "ips/<default>"),
        (Entity(client_id=".."), "clients/%2E%2E"),
        (Entity(client_id="a..b"), "clients/a..b"),
    ],
)
def test_paths_are_kafkas(entity, path):
    assert path_of(entity) == path
    assert entity_of_path(path) == entity


@pytest.mark.parametrize(
    "path", ["topics/t", "brokers/1", "users", "users/a/clients", "users/a/topics/b", "", "ips/a/"]
)
def test_other_paths_have_no_quotas(path):
    assert entity_of_path(path) is None


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "Invalid empty client quota entity"),
        ([("group", "g")], "Unhandled client quota entity type: group"),
        ([("", "g")], "Unhandled client quota entity type: "),
        ([("user", "")], "Empty user not supported"),
        ([("client-id", "")], "Empty client-id not supported"),
        ([("user", "a"), ("user", "b")], "duplicate entity entry user"),
        ([("ip", "1.2.3.4"), ("user", "b")], "Invalid quota entity combination"),
        ([("ip", None), ("client-id", None)], "Invalid quota entity combination"),
    ],
)
def test_entities_that_cannot_exist(parts, message):
    with pytest.raises(InvalidRequest, match=message):
        entity_of(parts)


@pytest.mark.parametrize(
    ("entity", "key", "limit", "message"),
    [
        (USER, "connection_creation_rate", 1, "Invalid configuration key connection_creation_rate"),
        (Entity(ip="1.2.3.4"), "producer_byte_rate", 1, "Invalid configuration key producer_byte_rate"),
        (USER, "unknown", 1, "Invalid configuration key unknown"),
        (USER, "SCRAM-SHA-256", 1, "Invalid configuration key SCRAM-SHA-256"),
        (USER, "producer_byte_rate", 0, "must be greater than 0"),
        (USER, "request_percentage", -0.0, "must be greater than 0"),
        (USER, "consumer_byte_rate", -1, "must be greater than 0"),
        (USER, "consumer_byte_rate", math.nan, "must be greater than 0"),
        (USER, "request_percentage", math.nan, "must be greater than 0"),
        (USER, "request_percentage", math.inf, "too large for a DOUBLE"),
        (USER, "producer_byte_rate", math.inf, "too large for a LONG"),
        (USER, "producer_byte_rate", 1e19, "too large for a LONG"),
        (Entity(ip=DEFAULT), "connection_creation_rate", 2**31, "too large for an INT"),
        (USER, "producer_byte_rate", 1.5, "cannot be a fractional value"),
        (USER, "producer_byte_rate", 1e-7, "must be greater than 0"),
    ],
)
def test_limits_that_cannot_be(entity, key, limit, message):
    with pytest.raises(InvalidRequest, match=message):
        check_limit(entity, key, limit)


@pytest.mark.parametrize(
    ("key", "limit", "text"),
    [
        ("producer_byte_rate", 1024.0, "1024"),
        ("consumer_byte_rate", 1024.0000001, "1024"),
        ("producer_byte_rate", float(2**63 - 1), "9223372036854775807"),
        ("request_percentage", 50.0, "50.0"),
        ("controller_mutation_rate", 0.25, "0.25"),
        ("connection_creation_rate", 7.0, "7"),
    ],
)
def test_texts_are_those_that_kafka_reads(key, limit, text):
    check_limit(USER if key in CLIENT_KEYS else Entity(ip=DEFAULT), key, limit)
    assert text_of(key, limit) == text


whole = st.integers(1, 2**53).map(float)
positive = st.floats(min_value=0, exclude_min=True, allow_infinity=False, allow_nan=False)
client_limits = st.fixed_dictionaries(
    {},
    optional={
        "producer_byte_rate": whole,
        "consumer_byte_rate": whole,
        "request_percentage": positive,
        "controller_mutation_rate": positive,
    },
)


@given(client_limits)
def test_limits_are_the_same_after_their_way_through_the_json_of_the_tree(limits):
    settings = {"SCRAM-SHA-256": "salt=1", **{key: text_of(key, limit) for key, limit in limits.items()}}
    assert limits_of(USER, EntityConfig.from_json(EntityConfig(settings).to_json()).config) == limits


@pytest.mark.parametrize("text", ["", "ten", "-1", "0", "nan", "1.5", "inf"])
def test_a_limit_in_the_tree_that_cannot_be_is_an_error(text):
    with pytest.raises(ValueError, match="producer_byte_rate"):
        limits_of(USER, {"SCRAM-SHA-256": "secret", "producer_byte_rate": text})


def test_no_key_is_for_clients_and_for_ips():
    assert not CLIENT_KEYS.keys() & IP_KEYS.keys()


def test_an_entity_shows_its_names():
    assert str(Entity(user="alice", client_id=DEFAULT)) == "user=alice, client-id=<default>"
