"""The requests between brokers, against the bytes of Apache Kafka's own classes. Round trips are in
``wire/test_server_codec.py``."""

from dataclasses import fields, is_dataclass

import pytest
from cluster_message_examples import GOLDEN, MESSAGES

from headrace.protocol.api import Api, versions_of
from headrace.protocol.kio import entity_reader, load_request_schema, load_response_schema
from headrace.protocol.wire.encoder import encoder_of


def schema_for(key, kind, version):
    load = load_request_schema if kind == "request" else load_response_schema
    return load(key, version)


def plain(value):
    """An entity as the dict that it was written from."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [plain(one) for one in value]
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def shared(given, got):
    """The given fields that the version has."""
    if isinstance(got, dict):
        return {name: shared(given[name], value) for name, value in got.items() if name in given}
    if isinstance(got, list):
        return [shared(one, other) for one, other in zip(given, got, strict=True)]
    return given


@pytest.mark.parametrize(("key", "kind", "version"), GOLDEN)
def test_bytes_are_apaches(key, kind, version):
    out = bytearray()
    encoder_of(schema_for(key, kind, version))(out, MESSAGES[key, kind], [])
    assert out.hex() == GOLDEN[key, kind, version]


@pytest.mark.parametrize(("key", "kind", "version"), GOLDEN)
def test_apaches_bytes_are_read(key, kind, version):
    data = bytes.fromhex(GOLDEN[key, kind, version])
    entity, size_bytes = entity_reader(schema_for(key, kind, version))(data, 0)
    assert size_bytes == len(data)
    given, got = MESSAGES[key, kind], plain(entity)
    assert {name: got[name] for name in got if name in given} == shared(given, got)


def test_every_version_that_we_speak_has_been_compared():
    spoken = {
        (key, kind, version)
        for key in (4, 5, 6, 7)
        for kind in ("request", "response")
        for version in versions_of(Api(key))
    }
    assert spoken == set(GOLDEN)


def test_a_field_that_a_version_has_not_still_has_its_value():
    entity, _ = entity_reader(load_request_schema(4, 5))(bytes.fromhex(GOLDEN[4, "request", 5]), 0)
    assert entity.is_k_raft_controller is False
    assert entity.topic_states[0].partition_states[0].leader_recovery_state == 0
