from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.properties import ConfigError
from headrace.security.tls.mapping_rules import MappingRules, NoMatchingRule

KAFKA_RULES = (
    r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    r"RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U,"
    r"RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U,"
    "DEFAULT"
)


@pytest.mark.parametrize(
    ("name", "user"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "Duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("O=Org,CN=a.b-c", "A.B"),
        ("O=Org", "O=Org"),
    ],
)
def test_the_first_rule_that_applies_decides(name, user):
    assert MappingRules(KAFKA_RULES).user_name(name) == user


@pytest.mark.parametrize(
    ("rules", "name", "user"),
    [
        ("DEFAULT", "CN=x", "CN=x"),
        ("RULE:^CN=(.*?)$/$1/", "CN=x", "x"),
        ("  RULE:^CN=(.*?)$/$1/ , DEFAULT  ", "O=x", "O=x"),
        ("RULE:^CN=(.*),O=(.*)$/$2-$1-$3-$12/", "CN=a,O=b", "b-a-$3-a2"),
        (r"RULE:^CN=(.*)\/(.*)$/$1\/$2/", "CN=a/b", "a/b"),
        (r"RULE:^CN=(.*)$/\$1$1/", "CN=a", "$1a"),
        ("RULE:^CN=.*$/$0!/", "CN=a", "CN=a!"),
        ("RULE:(x)?CN=(.*)/<$1>$2/", "CN=a", "<>a"),
        # As in Java, the pattern matches a second time, at the end of the name.
        ("RULE:.*/u/", "CN=a", "uu"),
        ("RULE:^CN=(.*?),O=Data\\\\, Team$/$1/", r"CN=a,O=Data\, Team", "a"),
        (",, DEFAULT", "CN=a", "CN=a"),
    ],
)
def test_rules(rules, name, user):
    assert MappingRules(rules).user_name(name) == user


@pytest.mark.parametrize("rules", ["", "RULE:^O=.*$/x/", "RULE:CN=/x/"])
def test_without_a_rule_that_applies_the_peer_has_no_name(rules):
    with pytest.raises(NoMatchingRule):
        MappingRules(rules).user_name("CN=a")


@pytest.mark.parametrize(
    "rules",
    [
        "RULE:(/x/",
        "RULE:[/x/",
        r"RULE:(a)\1/x/",
        "RULE:(?=a)/x/",
        "RULE:^CN=(.*)$/$x/",
        "RULE:a/$1/",
        "RULE:(a)/$/",
        "no rule, DEFAULT",
        "x" * 40_000,
    ],
)
def test_a_rule_that_cannot_work_is_refused_at_the_start(rules):
    with pytest.raises(ConfigError, match=r"configuration ssl\.principal\.mapping\.rules") as failure:
        MappingRules(rules)
    assert "\n" not in str(failure.value)


def test_a_name_of_a_peer_cannot_make_a_pattern_slow():
    rules = MappingRules(r"RULE:^CN=((a+)+)+$/$1/,DEFAULT")
    started = perf_counter()
    rules.user_name("CN=" + "a" * 5_000 + "!")
    assert perf_counter() - started < 5  # with backtracking: longer than the universe exists


@given(st.text(alphabet="RULE:DFAT/$\\,.*()12LU x", max_size=60), st.text(max_size=20))
def test_any_text_is_accepted_or_refused(rules, name):
    try:
        user = MappingRules(rules).user_name(name)
    except (ConfigError, NoMatchingRule):
        user = ""
    assert isinstance(user, str)
