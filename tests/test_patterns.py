"""Regular expressions in RE2's syntax, matched against names of topics without backtracking."""

import re
import string
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.patterns import Pattern
from headrace.protocol.errors import InvalidRegularExpression


@pytest.mark.parametrize(
    ("expression", "matching", "others"),
    [
        ("orders", ["orders"], ["orders2", "my-orders", "Orders"]),
        ("orders.*", ["orders", "orders-eu", "orders.2"], ["order"]),
        (r"orders\.eu", ["orders.eu"], ["orders-eu"]),
        ("a|b|cd", ["a", "b", "cd"], ["c", "ab"]),
        ("(eu|us)-(in|out)", ["eu-in", "us-out"], ["eu-", "in"]),
        ("(?:eu)+", ["eu", "eueu"], ["", "eue"]),
        ("(?P<region>eu)", ["eu"], ["us"]),
        ("(?<region>eu)", ["eu"], ["us"]),
        ("(?i)Eu-(?-i)x", ["EU-x", "eu-x"], ["eu-X"]),
        ("(?i:eu)-x", ["EU-x"], ["EU-X"]),
        ("(?i)[a-c]x", ["BX"], ["dx"]),
        ("[a-c0]+", ["abc0"], ["d", "a-c"]),
        ("[^a-c]", ["d", "-"], ["a", "dd"]),
        ("[]a]", ["a"], ["b"]),
        ("[a-]", ["a", "-"], ["b"]),
        ("[[:digit:][:upper:]]+", ["A1"], ["a1"]),
        ("[[:^digit:]]", ["a"], ["1"]),
        (r"\d{2,3}", ["12", "123"], ["1", "1234"]),
        (r"\d{2}", ["12"], ["123"]),
        (r"\d{2,}", ["12", "12345"], ["1"]),
        (r"a{,2}", [], ["a", "aa"]),
        (r"\w+\W\w+", ["a_1-b"], ["ab"]),
        (r"[\d_]+\S?", ["12_", "12x"], ["x"]),
        (r"\Qa.b\E+", ["a.b", "a.bb"], ["axb", "a.ba.b"]),
        (r"^a.*z$", ["az", "a-z"], ["a", "baz"]),
        (r"\Aa\z", ["a"], ["ab"]),
        (r"a\b.*", ["a", "a-b"], ["ab", "a_b"]),
        (r"a\B.*", ["ab"], ["a", "a-b"]),
        (r"a.*?b+?", ["ab", "axbb"], ["a"]),
        (r"\x61\x{62}", ["ab"], ["a"]),
        (r"\pL\p{Nd}\PL\p{^L}", ["a1-_"], ["11-_", "aa-_", "a1x_"]),
        (r"[\p{Lu}\d]+", ["A1"], ["a"]),
        (r"\p{Greek}+-a", ["ωα-a"], ["a-a"]),
        ("(?P<1>a)", ["a"], ["b"]),
        ("." * 3, ["añ.", "😀-ω"], ["ab", "abcd", "a\nb"]),
        ("a||b", ["", "a", "b"], ["ab"]),
        ("(|a)+", ["", "aaa"], ["b"]),
        ("(a*)*", ["", "aaa"], ["b"]),
        ("", [""], ["a"]),
        ("a^b", [], ["ab"]),
    ],
)  # fmt: skip
def test_what_matches(expression, matching, others):
    pattern = Pattern(expression)
    assert [name for name in matching if not pattern.matches(name)] == []
    assert [name for name in others if pattern.matches(name)] == []


@pytest.mark.parametrize(
    "expression",
    ["(", ")", "a)", "[", "[a", "*", "a**", "+a", "a{2}{3}", "a{1001}", "a{3,2}", r"\1", r"(a)\1", "(?=a)", "(?!a)",
     "(?<=a)", "(?<!a)", "(?P=x)", "(?>a)", "(?#x)", "(?P<->a)", "(?P<x", r"\p{L", r"\p{Klingon}", "[[:nope:]]",
     "[b-a]", "[\\d-z-\\w]{", "\\", r"\x", r"\xzz", r"\x{110000}", r"\e", r"\Qa\E**", "((a{1000}){1000}){1000}",
     "(" * 5001 + ")" * 5001, "(\\pL{10}){100}"],
)  # fmt: skip
def test_what_is_refused(expression):
    with pytest.raises(InvalidRegularExpression):
        Pattern(expression)


def test_matching_does_not_backtrack():
    started = perf_counter()
    assert not Pattern("(a*)*(a|aa)+b").matches("a" * 249)
    assert not Pattern("(.?){200}x").matches("a" * 249)
    assert perf_counter() - started < 2


#: The characters that a topic's name may have.
ALPHABET = string.ascii_letters + string.digits + "._-"

_piece = st.recursive(
    st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\b", "^", "$", r"\."]),
    lambda inner: st.one_of(
        st.builds("({}|{})".format, inner, inner),
        st.builds("{}{}".format, inner, inner),
        st.builds("(?:{}){}".format, inner, st.sampled_from(["*", "+", "?", "{0,2}", "{2}", "{1,}", "*?"])),
    ),
    max_leaves=6,
)


@given(expression=_piece, name=st.text("ab1.", max_size=6))
def test_it_agrees_with_python(expression, name):
    assert Pattern(expression).matches(name) == (re.fullmatch(expression, name) is not None)


@given(expression=st.text(ALPHABET + "()[]{}*+?|^$\\:<>=!,", max_size=12), name=st.text(ALPHABET, max_size=5))
def test_anything_either_matches_or_is_refused(expression, name):
    try:
        pattern = Pattern(expression)
    except InvalidRegularExpression:
        return
    assert pattern.matches(name) in (True, False)


def test_among_names():
    assert Pattern("a.*").among(["a", "ab", "b"]) == {"a", "ab"}
