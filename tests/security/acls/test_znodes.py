"""Rules in ZooKeeper: Kafka's paths and JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.security.acls import AclOperation, PatternType, Permission, ResourceType
from headrace.security.acls.bindings import AclEntry, AclPattern
from headrace.security.acls.znodes import (
    OWN_ROOTS,
    MalformedRulesError,
    can_be_znode,
    changes_path,
    decode_change,
    decode_rules,
    encode_change,
    encode_rules,
    own_pattern,
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
    assert decode_change(changes_path(pattern), encode_change(pattern)) == pattern


@given(st.binary() | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(json.dumps).map(str.encode))
def test_any_other_content_is_malformed(content):
    if content:
        with pytest.raises(MalformedRulesError):
            decode_rules(content)
    with pytest.raises(MalformedRulesError):
        decode_change("/kafka-acl-extended-changes", content)


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


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        (AclPattern(ResourceType.GROUP, "team/app"), "/headrace/acls/literal/Group:team%2Fapp"),
        (
            AclPattern(ResourceType.TRANSACTIONAL_ID, "team/", PREFIXED),
            "/headrace/acls/prefixed/TransactionalId:team%2F",
        ),
        (AclPattern(ResourceType.USER, "User:CN=a/b"), "/headrace/acls/literal/User:User%3ACN%3Da%2Fb"),
        (AclPattern(ResourceType.GROUP, ".."), "/headrace/acls/literal/Group:%2E%2E"),
        (AclPattern(ResourceType.GROUP, "a\0%/ü"), "/headrace/acls/literal/Group:a%00%25%2F%C3%BC"),
    ],
)
def test_paths_of_names_that_no_znode_can_have(pattern, path):
    parent, _, name = path.rpartition("/")
    assert pattern_path(pattern) == path
    assert OWN_ROOTS[pattern.pattern_type] == parent
    assert own_pattern(pattern.pattern_type, name) == pattern
    assert changes_path(pattern) == "/headrace/acls/changes"
    assert decode_change(changes_path(pattern), encode_change(pattern)) == pattern


@pytest.mark.parametrize(
    "name", ["Group:a", "Group:", "Group", "Queue:a%2Fb", "Group:a%2fb", "Group:%FF%2F", "Group:a%2"]
)
def test_other_znodes_there_are_malformed(name):
    with pytest.raises(MalformedRulesError):
        own_pattern(LITERAL, name)


@given(st.text(min_size=1))
def test_every_name_has_one_path(name):
    path = pattern_path(AclPattern(ResourceType.GROUP, name))
    assert path.count("/") == (3 if can_be_znode(name) else 4)
    if not can_be_znode(name):
        assert own_pattern(LITERAL, path.rpartition("/")[2]).name == name


def test_changes_are_those_of_kafka():
    assert encode_change(AclPattern(ResourceType.TOPIC, "a:b")) == b"TOPIC:a:b"
    assert decode_change("/kafka-acl-changes", b"Topic:a:b") == AclPattern(ResourceType.TOPIC, "a:b")
    prefixed = AclPattern(ResourceType.GROUP, "g", PREFIXED)
    assert json.loads(encode_change(prefixed)) == {
        "version": 1, "resourceType": "GROUP", "name": "g", "patternType": "PREFIXED",
    }  # fmt: skip
    with pytest.raises(MalformedRulesError):
        decode_change("/kafka-acl-changes", b"Topic")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\0b", "a\nb", "\x7f", "\ud800"])
def test_names_that_no_znode_can_have(name):
    assert not can_be_znode(name)
    assert can_be_znode("a" + name.strip("/\0\n\x7f\ud800.ab") + ".b*-ü")
