"""The filter language: what holds, what is an error, and that nothing else than a BadFilter ever comes out."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.console.records.filter_parser import LONGEST_FILTER, BadFilter, parse_filter

RECORD = {
    "value": {"amount": 150, "user": "ann", "tags": ["a", "b"], "nested": {"x y": None, "on": True}, "and": 1},
    "key": "k1",
    "headers": {"trace-id": "abc"},
    "partition": 3,
    "offset": 42,
    "timestamp": 1_000,
    "size": 99,
}


def holds(text, record=RECORD):
    return parse_filter(text).holds(record)


@pytest.mark.parametrize(
    "text",
    [
        'value.amount > 100 and value.user = "ann"',
        "value.amount > 1.5e2 or value.user == 'ann'",
        ".amount >= 150 and .amount <= 150 and not .amount < 150",
        "not (value.amount = 1 or value.amount = 2)",
        "not not value.nested.on",
        "value.tags contains 'a' and value.user contains 'nn'",
        "value.tags[0] = 'a' and value.tags[-1] = 'b' and value.tags[7] is null",
        "value.nested.\"x y\" is null and value['nested']['on'] = true",
        "value.user in ('bob', 'ann') and partition in (3)",
        "value.user startswith 'a' and value.user endswith 'n'",
        "value.user matches '^A(n+)$' or value.user matches '(?i)^A(n+)$'",
        "headers.\"trace-id\" = 'abc' and headers['trace-id'] is not null",
        "VALUE.amount > 100 AND key = 'k1'",
        "value.and = 1",
        "value.amount != '150' and value.missing != 1",
        "'\\u0061nn' = value.user",
        "'it\\'s' = \"it's\" and '\"' = \"\\\"\"",
        "value",
    ],
)
def test_these_hold(text):
    assert holds(text)


@pytest.mark.parametrize(
    "text",
    [
        "value.amount > '100'",
        "value.missing > 1",
        "value.missing = 1",
        "value.missing",
        "value.nested.on = 1",
        "value.amount.deeper = 1",
        "value.nested.on is null",
        "false or null",
        "value.amount contains 1",
        "value.tags matches 'a'",
    ],
)
def test_these_do_not_hold(text):
    assert not holds(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "at character 1: 'the end'"),
        ("value.amount >", "at character 15"),
        ("value.amount = 1 value", "'and' or 'or'"),
        ("amount = 1", "a path that begins with"),
        ("__import__('os')", "a path that begins with"),
        ("value.a = 1 ; drop", "at character 13"),
        ("value.a matches '('", "not an expression of RE2"),
        ("value.a matches value.b", "an expression in quotes"),
        ("value.a in (value.b)", "a number, a text"),
        ("headers = 1", "the name of a header"),
        ("value[1.5] = 1", "a whole number or a name"),
        ("value.a = '\\q'", "escape"),
        ("value.a = 'x", "at character 11"),
        ("(" * 60 + "value" + ")" * 60, "parentheses"),
        ("value = " + "1" * 50, "a number, a text"),
        ("x" * (LONGEST_FILTER + 1), "characters"),
    ],
)
def test_what_is_no_filter_is_an_error_with_its_place(text, message):
    with pytest.raises(BadFilter, match=message.replace("(", "\\(")):
        parse_filter(text)


def test_a_filter_knows_what_it_needs():
    assert parse_filter("value.a = 1 and offset > 2").roots == {"value", "offset"}


NAMES = st.text("abcxyz_", min_size=1, max_size=5)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-(10**15), 10**15), st.text(max_size=20))
DOCUMENTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=10
)


@given(st.text(max_size=80) | st.text("value.key and or not ()[]'\"=<>!0123456789\\", max_size=60), DOCUMENTS)
def test_any_text_is_a_filter_or_a_bad_filter(text, document):
    try:
        found = parse_filter(text)
    except BadFilter:
        return
    assert found.holds({**RECORD, "value": document}) in (True, False)


@given(NAMES, SCALARS, SCALARS)
def test_equality_is_that_of_json(name, left, right):
    text = f"value[{json.dumps(name)}] = {json.dumps(right)}"
    is_equal = json.dumps(left) == json.dumps(right)
    assert holds(text, {**RECORD, "value": {name: left}}) == is_equal
    assert holds(f"not {text}", {**RECORD, "value": {name: left}}) != is_equal


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(["and", "or"])), min_size=1, max_size=6))
def test_and_binds_stronger_than_or(terms):
    text = "".join(f"{str(term).lower()} {word} " for term, word in terms[:-1]) + str(terms[-1][0]).lower()
    python = "".join(f"{term} {word} " for term, word in terms[:-1]) + str(terms[-1][0])
    groups = [group.split(" and ") for group in python.split(" or ")]
    assert holds(text) == any(all(each == "True" for each in group) for group in groups)


@given(st.integers(-(10**9), 10**9), st.integers(-(10**9), 10**9))
def test_numbers_are_ordered(left, right):
    record = {**RECORD, "value": {"n": left}}
    found = [holds(f"value.n {sign} {right}", record) for sign in ("<", "<=", ">", ">=")]
    assert found == [left < right, left <= right, left > right, left >= right]
