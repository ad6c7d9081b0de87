"""Every value of a TOML text has its line and its characters."""

import tomllib
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline.view_tests.places import toml_places

TEXT = '''# a comment with [[test]] in it
view = "revenue"   # and "another"

[[test]]
name = """
[[test]] name = "inside of a text"
\\"""still inside"""
ordered = false

[[test.step]]
records.orders = [
    { id = 1, "a.b" = { c = [1, 2] } },   # }
    { id = 2, text = 'it}, #' },
]
rows = [] # none

[[test.step]]
[[test.step.rows]]
total = 1e3
[[test.step.rows]]
at = 2026-11-16 08:30:00
[[test]]
name = 'last'
'''


def test_values_have_their_lines():
    tomllib.loads(TEXT)
    places = toml_places(TEXT)
    found = {
        ("view",): "view", ("test", 0): "[[test]]", ("test", 0, "name"): "name", ("test", 0, "ordered"): "ordered",
        ("test", 0, "step", 0, "records", "orders", 0, "a.b", "c", 1): "{ id = 1",
        ("test", 0, "step", 0, "records", "orders", 1, "text"): "{ id = 2",
        ("test", 0, "step", 0, "rows"): "rows = []", ("test", 0, "step", 1, "rows", 1, "at"): "at = ",
        ("test", 1, "name"): "name = 'last'",
    }  # fmt: skip
    lines = TEXT.splitlines()
    for path, text in found.items():
        assert lines[places.lines[path] - 1].lstrip().startswith(text), path


def test_values_have_their_characters():
    places = toml_places(TEXT)
    spans = {path: TEXT[span.start : span.end] for path, span in places.spans.items()}
    assert spans[("test", 0, "step", 0, "rows")] == "[]"
    assert spans[("test", 0, "step", 0, "records", "orders", 0, "id")] == "1"
    assert spans[("test", 0, "step", 0, "records", "orders", 0, "a.b")] == "{ c = [1, 2] }"
    assert spans[("test", 0, "step", 1, "rows", 1, "at")] == "2026-11-16 08:30:00"
    assert spans[("test", 0, "ordered")] == "false"
    assert spans[("test", 0, "name")].endswith('still inside"""')


def test_an_unknown_place_has_the_line_of_what_is_around_it():
    places = toml_places("a = 1\n[[t]]\nb = 2\n")
    assert places.line(("t", 0, "missing")) == 2
    assert places.line(("missing",)) is None


_TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x7f", exclude_categories=("Cs", "Cc")), max_size=8)
_VALUES = st.recursive(
    st.one_of(st.integers(-9, 9), st.booleans(), _TEXTS, st.dates(date(1990, 1, 1), date(2030, 1, 1))),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=8,
)


def written(value, spaces: str) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{spaces}{quoted(key)} = {written(item, '')}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + "".join(f'{spaces}{written(item, spaces)}, # ], }} "\n' for item in value) + "]"
    return str(value).lower() if isinstance(value, bool) else quoted(value) if isinstance(value, str) else str(value)


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@given(st.dictionaries(_TEXTS, _VALUES, max_size=4), st.sampled_from(["", " "]))
def test_the_characters_of_a_value_are_the_value(content, spaces):
    text = "".join(f"{quoted(key)}{spaces}={spaces}{written(value, spaces)} # [\n" for key, value in content.items())
    try:
        parsed = tomllib.loads(text)
    except tomllib.TOMLDecodeError:  # before TOML 1.1 an inline table has no line break
        return
    places = toml_places(text)
    for key, value in parsed.items():
        escaped = quoted(key)[1:-1]
        span = places.spans[(escaped,)]
        assert tomllib.loads(f"a = {text[span.start : span.end]}") == {"a": value}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_both_line_ends_count(end):
    text = f"a = [{end}1,{end}2]{end}b = 3{end}"
    places = toml_places(text)
    assert (places.lines[("a", 1)], places.lines[("b",)]) == (3, 4)
    assert text[slice(*places.spans[("b",)])] == "3"
