"""Rules in ZooKeeper: Kafka's paths and JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.security.acls import AclOperation, PatternType, Permission, ResourceType
from headrace.security.acls.bindings import AclEntry, AclPattern
from headrace.security.acls.znodes import (
    MalformedRulesError,
    can_be_stored,
    decode_change,
    decode_rules,
    encode_change,
    encode_rules,
    pattern_path,
)

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
entries = st.builds(
    AclEntry,
    st.builds("{}:{}".format, st.sampled_from(["User", "Group"]), st.text()),
    st.sampled_from(["*", "10.0.0.1", "::1"]),
    st.sampled_from([each for each in AclOperation if each.is_concrete]),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)
patterns = st.builds(
    AclPattern,
    st.sampled_from([each for each in ResourceType if each.is_concrete]),
    st.text(min_size=1),
    st.sampled_from([LITERAL, PREFIXED]),
)


@given(st.frozensets(entries))
def test_rules_survive_a_round_trip(rules):
    assert decode_rules(encode_rules(rules)) == rules


@given(patterns)
def test_changes_survive_a_round_trip(pattern):
    assert decode_change(pattern.pattern_type, encode_change(pattern)) == pattern


@given(st.binary() | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(json.dumps).map(str.encode))
def test_any_other_content_is_malformed(content):
    if content:
        with pytest.raises(MalformedRulesError):
            decode_rules(content)
    with pytest.raises(MalformedRulesError):
        decode_change(PREFIXED, content)


def test_the_json_is_that_of_kafka():
    """The form that the AclAuthorizer of Kafka 3.x writes."""
    content = (
        b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow","operation":"DescribeConfigs",'
        b'"host":"*"}]}'
    )
    entry = AclEntry("User:alice", "*", AclOperation.DESCRIBE_CONFIGS, Permission.ALLOW)
    assert decode_rules(content) == {entry}
    assert encode_rules([entry]) == content
    assert decode_rules(b"") == frozenset()


@pytest.mark.parametrize(
    "wrong",
    [
        {"operation": "Fly"},
        {"operation": "Any"},
        {"permissionType": "Maybe"},
        {"permissionType": "Unknown"},
        {"principal": "alice"},
        {"principal": None},
        {"host": 7},
    ],
)
def test_one_wrong_rule_is_never_left_out(wrong):
    good = {"principal": "User:a", "permissionType": "Allow", "operation": "Read", "host": "*"}
    with pytest.raises(MalformedRulesError):
        decode_rules(json.dumps({"version": 1, "acls": [good, good | wrong]}).encode())


def test_another_version_is_malformed():
    with pytest.raises(MalformedRulesError, match="version 2"):
        decode_rules(b'{"version":2,"acls":[]}')


def test_paths():
    assert pattern_path(AclPattern(ResourceType.TRANSACTIONAL_ID, "t")) == "/kafka-acl/TransactionalId/t"
    prefixed = AclPattern(ResourceType.TOPIC, "t", PREFIXED)
    assert pattern_path(prefixed) == "/kafka-acl-extended/prefixed/Topic/t"


def test_changes_are_those_of_kafka():
    assert encode_change(AclPattern(ResourceType.TOPIC, "a:b")) == b"TOPIC:a:b"
    assert decode_change(LITERAL, b"Topic:a:b") == AclPattern(ResourceType.TOPIC, "a:b")
    prefixed = AclPattern(ResourceType.GROUP, "g", PREFIXED)
    assert json.loads(encode_change(prefixed)) == {
        "version": 1, "resourceType": "GROUP", "name": "g", "patternType": "PREFIXED",
    }  # fmt: skip
    with pytest.raises(MalformedRulesError):
        decode_change(LITERAL, b"Topic")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\0b", "a\nb", "\x7f", "\ud800"])
def test_names_that_no_znode_can_have(name):
    assert not can_be_stored(name)
    assert can_be_stored("a" + name.strip("/\0\n\x7f\ud800.ab") + ".b*-ü")
