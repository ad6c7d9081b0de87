"""Lines as records, by Kafka's rules."""

import pytest

from headrace.tools.console_producer.line_reader import BadLine, LineReader, without_end

KEY = {"parse.key": "true"}
ALL = {"parse.key": "true", "parse.headers": "true"}


@pytest.mark.parametrize(
    ("properties", "line", "wanted"),
    [
        ({}, b"a\tb", (None, b"a\tb", ())),
        ({}, b"", (None, b"", ())),
        ({}, b"\xff\0", (None, b"\xff\0", ())),
        (KEY, b"k\tv\tw", (b"k", b"v\tw", ())),
        (KEY, b"\t", (b"", b"", ())),
        (KEY | {"key.separator": "::"}, b"k::v", (b"k", b"v", ())),
        (KEY | {"ignore.error": "true"}, b"v", (None, b"v", ())),
        (KEY | {"null.marker": "NULL"}, b"NULL\tNULL", (None, None, ())),
        (ALL, b"h:1,i:\tk\tv", (b"k", b"v", (("h", b"1"), ("i", b"")))),
        (ALL, b"\tk\tv", (b"k", b"v", ())),
        (ALL | {"null.marker": "-"}, b"h:-\t-\tv", (None, b"v", (("h", None),))),
        (ALL | {"ignore.error": "true"}, b"h\tk\tv", (b"k", b"v", (("h", None),))),
        ({"parse.headers": "TRUE", "headers.delimiter": "|", "headers.separator": ";", "headers.key.separator": "="},
         b"h=a:b;i=c|v", (None, b"v", (("h", b"a:b"), ("i", b"c")))),
    ],
)  # fmt: skip
def test_lines(properties, line, wanted):
    assert LineReader(properties).parse(line) == wanted


@pytest.mark.parametrize(
    ("properties", "line", "said"),
    [
        (KEY, b"abc", "No key separator found on line number 2: 'abc'"),
        (ALL, b"abc", "No headers delimiter found on line number 2: 'abc'"),
        (ALL, b"h\tk\tv", "No header key separator found in pair 'h' on line number 2"),
        (ALL | {"null.marker": "-"}, b"-:1\tk\tv", "Header keys should not be equal to the null marker '-'"),
    ],
)
def test_bad_lines_are_told_with_their_number(properties, line, said):
    reader = LineReader(properties)
    reader.parse(b"h:1\tk\tv")
    with pytest.raises(BadLine, match="^" + said.replace("(", r"\\(")):
        reader.parse(line)


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"parse.keys": "true"}, "there is no reader property parse.keys"),
        (ALL | {"headers.delimiter": ","}, "headers.delimiter and headers.separator may not be equal"),
        (ALL | {"headers.separator": ":"}, "headers.separator and headers.key.separator may not be equal"),
        (KEY | {"null.marker": "\t"}, "null.marker and key.separator may not be equal"),
        (KEY | {"key.separator": ""}, "key.separator may not be empty"),
    ],
)
def test_properties_that_cannot_be(properties, said):
    with pytest.raises(ValueError, match=said):
        LineReader(properties)


def test_a_reader_that_has_nothing_to_do_says_so():
    assert LineReader().is_plain
    assert not LineReader(KEY).is_plain
    assert not LineReader({"null.marker": "x"}).is_plain


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_ends_of_lines(end):
    assert without_end(b"a\rb" + end) == b"a\rb"
