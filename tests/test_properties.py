"""Java properties files: each rule of the syntax, and that a written text reads back."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.properties import ConfigError, parse_overrides, parse_properties, read_properties_file, to_properties

TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
ESCAPED = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "\\": "\\\\", "=": "\\=", ":": "\\:"}


def format_properties(properties: dict[str, str]) -> str:
    """Writes a properties text as Java does."""
    return "".join(f"{escape_name(name)}={escape_value(value)}\n" for name, value in properties.items())


def escape_value(value: str) -> str:
    escaped = "".join(ESCAPED.get(character, character) for character in value)
    return "\\" + escaped if escaped.startswith(" ") else escaped


def escape_name(name: str) -> str:
    escaped = "".join(ESCAPED.get(character, character) for character in name).replace(" ", "\\ ")
    return "\\" + escaped if escaped[:1] in ("#", "!") else escaped


@given(st.dictionaries(TEXT, TEXT, max_size=5))
def test_what_is_written_reads_back(properties: dict[str, str]) -> None:
    assert parse_properties(format_properties(properties)) == properties


@given(st.text(max_size=80))
def test_any_text_reads_or_is_refused(text: str) -> None:
    try:
        properties = parse_properties(text)
    except ConfigError:
        assert "\\u" in text
    else:
        assert all(isinstance(name, str) and isinstance(value, str) for name, value in properties.items())


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("a=b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("  a \t = \t b ", {"a": "b "}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a==b", {"a": "=b"}),
        ("a b=c", {"a": "b=c"}),
        ("# no\n! no\n  # no\na=b # yes", {"a": "b # yes"}),
        ("a=b\\\n   c", {"a": "bc"}),
        ("a=b\\\n# c", {"a": "b# c"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\", {"a": "b"}),
        ("a\\=b=c\\:d", {"a=b": "c:d"}),
        ("a\\ b=c", {"a b": "c"}),
        ("a=\\t\\n\\r\\f\\q", {"a": "\t\n\r\fq"}),
        ("a=\\u00e9\\uD83D\\uDE00", {"a": "é😀"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("", {}),
    ],
)
def test_syntax(text: str, properties: dict[str, str]) -> None:
    assert parse_properties(text) == properties


def test_a_broken_escape_is_one_clear_line() -> None:
    with pytest.raises(ConfigError, match="four hexadecimal digits"):
        parse_properties("a=\\u12")


def test_options_of_a_command_line() -> None:
    assert parse_overrides(["a=b", "c = d=e", "f="]) == {"a": "b", "c": "d=e", "f": ""}
    with pytest.raises(ConfigError) as error:
        parse_overrides(["novalue", "a=b", "=x"])
    assert [problem.split(":")[0] for problem in error.value.problems] == [
        "Invalid option -o number 1",
        "Invalid option -o number 3",
    ]


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=3\n", encoding="utf-8")
    assert read_properties_file(path) == {"num.partitions": "3"}
    with pytest.raises(ConfigError, match="No such file"):
        read_properties_file(tmp_path / "other")
    path.write_bytes(b"a=\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_properties_file(path)


@given(st.dictionaries(TEXT.filter(bool), TEXT))
def test_our_own_text_reads_back_and_is_ascii(properties: dict[str, str]) -> None:
    written = to_properties(properties)
    assert written.isascii()
    assert parse_properties(written) == properties
