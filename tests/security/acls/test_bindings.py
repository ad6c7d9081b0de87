"""Kinds, rules, and filters of rules."""

import pytest

from headrace.security.acls import AclBinding, AclFilter, AclOperation, PatternType, Permission, ResourceType

TOPIC, READ = ResourceType.TOPIC, AclOperation.READ
LITERAL = AclBinding.of(TOPIC, "orders", "User:a", READ)
PREFIX = AclBinding.of(TOPIC, "ord", "User:a", READ, pattern_type=PatternType.PREFIXED)
ALL = AclBinding.of(TOPIC, "*", "User:b", AclOperation.ALL, Permission.DENY, host="10.0.0.1")


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (AclFilter(), [LITERAL, PREFIX, ALL]),
        (AclFilter(TOPIC, "orders", PatternType.LITERAL), [LITERAL]),
        (AclFilter(TOPIC, "orders", PatternType.ANY), [LITERAL]),
        (AclFilter(TOPIC, "ord", PatternType.ANY), [PREFIX]),
        (AclFilter(TOPIC, "ord", PatternType.LITERAL), []),
        (AclFilter(TOPIC, "orders", PatternType.MATCH), [LITERAL, PREFIX, ALL]),
        (AclFilter(TOPIC, "other", PatternType.MATCH), [ALL]),
        (AclFilter(TOPIC, "*", PatternType.LITERAL), [ALL]),
        (AclFilter(ResourceType.GROUP, "orders", PatternType.MATCH), []),
        (AclFilter(TOPIC, None, PatternType.PREFIXED), [PREFIX]),
        (AclFilter(principal="User:b"), [ALL]),
        (AclFilter(host="10.0.0.1"), [ALL]),
        (AclFilter(operation=READ), [LITERAL, PREFIX]),
        (AclFilter(permission=Permission.DENY), [ALL]),
    ],
)
def test_what_a_filter_finds(wanted, found):
    assert [each for each in (LITERAL, PREFIX, ALL) if wanted.matches(each)] == found


def test_kinds_have_three_spellings():
    kind = ResourceType.TRANSACTIONAL_ID
    assert (kind.name, kind.title, int(kind)) == ("TRANSACTIONAL_ID", "TransactionalId", 5)
    for text in ("TransactionalId", "TRANSACTIONAL_ID", "transactional_id", "transactionalid"):
        assert ResourceType.of_name(text) is kind
    assert ResourceType.of_code(99) is ResourceType.UNKNOWN
    with pytest.raises(ValueError, match="'Queue' is not one of Topic, Group"):
        ResourceType.of_name("Queue")


def test_a_filter_with_a_code_of_a_newer_version():
    assert AclFilter().is_known
    assert not AclFilter(operation=AclOperation.of_code(77)).is_known


def test_rules_are_written_as_kafka_writes_them():
    assert str(PREFIX.pattern) == "ResourcePattern(resourceType=TOPIC, name=ord, patternType=PREFIXED)"
    assert str(PREFIX.entry) == "(principal=User:a, host=*, operation=READ, permissionType=ALLOW)"
