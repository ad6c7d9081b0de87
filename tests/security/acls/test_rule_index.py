"""The index decides as a model that looks at every rule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.security.acls import AclBinding, AclOperation, PatternType, Permission, ResourceType
from headrace.security.acls.bindings import AclEntry, AclPattern, pattern_fits
from headrace.security.acls.kinds import IMPLIED_BY
from headrace.security.acls.rule_index import RuleIndex

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE

# Few letters and short names: most patterns then are prefixes of each other.
names = st.text("abß", min_size=1, max_size=5)
principals = st.sampled_from(["User:a", "User:b", "Group:a", "User:*"])
hosts = st.sampled_from(["*", "10.0.0.1", "::1"])
operations = st.sampled_from([each for each in AclOperation if each.is_concrete])
patterns = st.one_of(
    st.builds(AclPattern, st.sampled_from([TOPIC, GROUP]), names | st.just("*"), st.just(PatternType.LITERAL)),
    st.builds(AclPattern, st.sampled_from([TOPIC, GROUP]), names | st.just("*"), st.just(PatternType.PREFIXED)),
)
entries = st.builds(AclEntry, principals, hosts, operations, st.sampled_from([Permission.ALLOW, Permission.DENY]))
bindings = st.builds(AclBinding, patterns, entries)
asked = st.tuples(principals.filter(lambda who: who != "User:*"), hosts.filter(lambda host: host != "*"))
asked_operations = operations.filter(lambda each: each is not AclOperation.ALL)


def matches(rule, principal, host, operation):
    entry = rule.entry
    named = {operation, AclOperation.ALL}
    if entry.permission is Permission.ALLOW:
        named |= set(IMPLIED_BY.get(operation, ()))
    return entry.principal in (principal, "User:*") and entry.host in (host, "*") and entry.operation in named


def model(rules, principal, host, operation, resource_type, name, *, allow_if_no_rule):
    fitting = [
        each for each in rules if each.pattern.resource_type is resource_type and pattern_fits(each.pattern, name)
    ]
    if not fitting:
        return allow_if_no_rule
    found = {rule.entry.permission for rule in fitting if matches(rule, principal, host, operation)}
    return Permission.DENY not in found and Permission.ALLOW in found


@given(st.lists(bindings, max_size=30), asked, asked_operations, names, st.booleans())
def test_a_decision_is_that_of_all_rules_together(rules, who, operation, name, allow_if_no_rule):
    index = RuleIndex(rules, allow_if_no_rule=allow_if_no_rule)
    decision = index.decide(*who, operation, TOPIC, name)
    assert decision.is_allowed == model(rules, *who, operation, TOPIC, name, allow_if_no_rule=allow_if_no_rule)
    if decision.rule is not None:
        assert decision.rule in rules
        assert matches(decision.rule, *who, operation)
        assert decision.is_allowed == (decision.rule.entry.permission is Permission.ALLOW)


@given(st.lists(bindings, max_size=30), st.data())
def test_rules_can_be_added_and_removed_one_by_one(rules, data):
    index = RuleIndex()
    for rule in rules:
        index.add(rule)
    assert set(index) == set(rules)
    removed = set(data.draw(st.lists(st.sampled_from(rules)))) if rules else set()
    for rule in removed:
        index.remove(rule)
    left = set(rules) - removed
    assert set(index) == left
    assert len(index) == len(left)
    who, operation, name = data.draw(asked), data.draw(asked_operations), data.draw(names)
    expected = model(left, *who, operation, GROUP, name, allow_if_no_rule=False)
    assert index.decide(*who, operation, GROUP, name).is_allowed == expected


@given(st.lists(bindings, max_size=12), asked, asked_operations)
def test_allowed_on_any_resource_finds_a_rule_that_no_rule_denies(rules, who, operation):
    """The model is Kafka's: it compares the patterns of rules, and does not count implied operations."""
    index = RuleIndex(rules)
    mine = [each for each in rules if each.pattern.resource_type is TOPIC]
    named = [each for each in mine if matches(each, *who, operation) and each.entry.operation in (operation, 2)]
    denied = {each.pattern for each in named if each.entry.permission is Permission.DENY}
    allowed = {each.pattern for each in named if each.entry.permission is Permission.ALLOW}
    everything = AclPattern(TOPIC, "*")

    def is_dominated(pattern):
        prefixes = (AclPattern(TOPIC, pattern.name[:end], PatternType.PREFIXED) for end in range(1, 6))
        return (pattern in denied and pattern.pattern_type is PatternType.LITERAL) or any(p in denied for p in prefixes)

    expected = everything not in denied and (
        everything in allowed or any(not is_dominated(pattern) for pattern in allowed)
    )
    is_implied = index.decide(*who, operation, TOPIC, "hardcode").is_allowed
    assert index.is_allowed_on_any(*who, operation, TOPIC) == (expected or is_implied)


@pytest.mark.parametrize(
    ("stored", "host"),
    [
        ("0:0:0:0:0:0:0:1", "::1"),
        ("::1", "::1"),
        ("2001:DB8:0:0:0:0:0:A", "2001:db8::a"),
        ("10.0.0.1", "::ffff:10.0.0.1"),
        ("fe80:0:0:0:0:0:0:1%eth0", "fe80::1%eth0"),
        ("a-name", "a-name"),
    ],
)
def test_hosts_are_compared_as_addresses(stored, host):
    rule = AclBinding.of(TOPIC, "t", "User:a", READ, host=stored)
    index = RuleIndex([rule])
    assert index.decide("User:a", host, READ, TOPIC, "t").rule == rule
    assert not index.decide("User:a", "::2", READ, TOPIC, "t").is_allowed


def test_two_texts_of_one_address_are_two_rules():
    short, long = (AclBinding.of(TOPIC, "t", "User:a", READ, host=host) for host in ("::1", "0:0:0:0:0:0:0:1"))
    index = RuleIndex([short, long])
    index.remove(short)
    assert index.decide("User:a", "::1", READ, TOPIC, "t").rule == long
    index.remove(long)
    assert not index.decide("User:a", "::1", READ, TOPIC, "t").is_allowed


def test_deny_counts_before_allow():
    index = RuleIndex(
        [
            AclBinding.of(TOPIC, "*", "User:alice", AclOperation.ALL),
            AclBinding.of(TOPIC, "pay", "User:*", READ, Permission.DENY, pattern_type=PatternType.PREFIXED),
        ]
    )
    assert index.decide("User:alice", "10.0.0.1", READ, TOPIC, "orders").is_allowed
    assert not index.decide("User:alice", "10.0.0.1", READ, TOPIC, "payments").is_allowed
    assert index.decide("User:alice", "10.0.0.1", WRITE, TOPIC, "payments").is_allowed


def test_deny_of_read_does_not_deny_describe_but_allow_of_read_allows_it():
    denied = AclBinding.of(TOPIC, "t", "User:a", READ, Permission.DENY)
    allowed = AclBinding.of(TOPIC, "t", "User:a", WRITE)
    assert RuleIndex([allowed, denied]).decide("User:a", "h", DESCRIBE, TOPIC, "t").rule == allowed


@pytest.mark.parametrize("allow_if_no_rule", [False, True])
def test_no_rule_found_means_no_rule_of_anybody(allow_if_no_rule):
    index = RuleIndex([AclBinding.of(TOPIC, "t", "User:other", WRITE)], allow_if_no_rule=allow_if_no_rule)
    assert not index.decide("User:a", "h", WRITE, TOPIC, "t").is_allowed
    assert index.decide("User:a", "h", WRITE, TOPIC, "u").is_allowed == allow_if_no_rule


def test_a_search_for_prefixes_does_not_look_at_all_prefixes():
    """A list that counts its reads: a binary search of 20,000 prefixes reads about 15 of them."""
    index = RuleIndex(
        AclBinding.of(TOPIC, f"team{n:05}", "User:a", READ, pattern_type=PatternType.PREFIXED) for n in range(20_000)
    )
    index.add(AclBinding.of(TOPIC, "t", "User:a", READ, pattern_type=PatternType.PREFIXED))
    prefixes = index._types[TOPIC].prefixes = CountingList(index._types[TOPIC].prefixes)
    assert index.decide("User:a", "h", READ, TOPIC, "team19999.orders").is_allowed
    assert index.decide("User:a", "h", READ, TOPIC, "tea").rule.pattern.name == "t"
    assert prefixes.reads < 200


class CountingList(list):
    reads = 0

    def __getitem__(self, index):
        self.reads += 1
        return super().__getitem__(index)
