"""JSON and CSV values: which of them decode, and that no part of a value is ignored silently."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.pipeline.decoding.events import UnsuitableDecode, columns_of, decode_frame
from headrace.pipeline.project.definition import Decode
from headrace.pipeline.query.aggregates import arrow_schema
from headrace.pipeline.query.row_functions import RowFunction
from headrace.pipeline.spark.source.data_source import spark_schema

AT = datetime(2026, 11, 16, 8, 30, tzinfo=UTC)
SCHEMA = (
    "a BIGINT, t TINYINT, s STRING, d DOUBLE, f FLOAT, e DECIMAL(5,2), b BOOLEAN, r ARRAY<INT>, ts TIMESTAMP, "
    "n STRUCT<x: INT NOT NULL, o: STRUCT<p: INT, q: STRING>>, l ARRAY<STRUCT<x: TINYINT NOT NULL>>, "
    "m MAP<STRING, STRUCT<x: INT NOT NULL>>"
)


@pytest.fixture
def decoded(spark):
    """Of each value the columns that are not NULL, or the reason; by a Spark job, and without one."""

    def run(decode: Decode, *values: bytes) -> list[dict[str, object] | str]:
        names = columns_of(decode).names
        rows = [(None, value, "clicks", 0, offset, AT, 0) for offset, value in enumerate(values)]
        raw = spark.createDataFrame(rows, spark_schema(include_headers=False))
        by_job = decode_frame(decode, raw).toArrow().sort_by("_offset")
        plan = decode_frame(decode, raw, is_optimized=False).select(*names, "_error")
        function = RowFunction.prepare(plan, arrow_schema(plan.schema))
        assert function is not None
        found = function(pa.table({"value": pa.array(values, pa.binary())})).to_pylist()
        assert repr(found) == repr(by_job.select([*names, "_error"]).cast(arrow_schema(plan.schema)).to_pylist())
        return [row["_error"] or {name: row[name] for name in names if row[name] is not None} for row in found]

    return run


JSON = {
    # whole documents, whatever is around them
    '{"a":1}': {"a": 1},
    ' \t\r\n{"a":1} \t\r\n': {"a": 1},
    '{\n  "a": 1\n}\n': {"a": 1},
    "{}": {},
    "{ \n}": {},
    " {} ": {},
    "{'a':1}": {"a": 1},
    '{"s":"}"}': {"s": "}"},
    '{"s":"\\\\"}': {"s": "\\"},
    '{"n":{"x":1,"o":{"p":2}}}': {"n": {"x": 1, "o": {"p": 2, "q": None}}},
    '{"more":{"a":7}}': {},
    '{"a":1,"a":2}': {"a": 2},
    # more than a document
    '{"a":1} x': "text follows the JSON document",
    '{"a":1}{"a":2}': "text follows the JSON document",
    '{"a":1}\n{"a":2}\n': "text follows the JSON document",
    '{"a":1},{"a":2}': "text follows the JSON document",
    '{"a":1}}': "text follows the JSON document",
    '{"a":1} {}': "text follows the JSON document",
    '{}{}': "text follows the JSON document",
    '{"a":1},"b":2}': "text follows the JSON document",
    '{"a":1}\x00': "text follows the JSON document",
    # less than one
    '{"a":1': "the value is not a JSON object",
    '{"s":"x}': "the value is not a JSON object",
    '{"n":{"x":1}': "the value is not a JSON object",
    '{"a":}': "the value is not a JSON object",
    '{"a":1,}': "the value is not a JSON object",
    "}": "the value is not a JSON object",
    "null": "the value is not a JSON object",
    "7": "the value is not a JSON object",
    '[{"a":1}]': "the value is not a JSON object",
    '\ufeff{"a":1}': "the value is not a JSON object",
    "  \n ": "the value is empty",
    # numbers
    '{"a":1.0}': "a: the value does not fit BIGINT",
    '{"a":"7"}': "a: the value does not fit BIGINT",
    '{"a":true}': "a: the value does not fit BIGINT",
    '{"a":9223372036854775808}': "a: the value does not fit BIGINT",
    '{"t":127,"l":[{"x":-128}]}': {"t": 127, "l": [{"x": -128}]},
    '{"t":128}': "t: the value does not fit TINYINT",
    '{"t":256}': "t: the value does not fit TINYINT",
    '{"l":[{"x":1},{"x":200}]}': "l[].x: the value does not fit TINYINT",
    '{"d":7,"f":7,"e":7}': {"d": 7.0, "f": 7.0, "e": pytest.approx(7)},
    '{"d":1e400,"f":1e300}': {"d": math.inf, "f": math.inf},
    '{"d":"Infinity"}': {"d": math.inf},
    '{"d":"7"}': "d: the value does not fit DOUBLE",
    '{"e":1000}': "e: the value does not fit DECIMAL(5,2)",
    '{"s":7}': {"s": "7"},
    '{"b":1}': "b: the value does not fit BOOLEAN",
    '{"ts":"yesterday","s":"x"}': "ts: the value does not fit TIMESTAMP",
    '{"a":"x","b":"y","s":"z"}': "a: the value does not fit BIGINT; b: the value does not fit BOOLEAN",
    # inside of others
    '{"r":[1,"x"]}': "r: the value does not fit ARRAY<INT>",
    '{"n":7}': "n: the value does not fit STRUCT<X:INT,O:STRUCT<P:INT,Q:STRING>>",
    '{"n":{"x":"y"}}': "n.x: the value does not fit INT",
    '{"n":{"x":1,"o":{"p":"y"}}}': "n.o.p: the value does not fit INT",
    '{"n":{}}': "n.x: missing, but the schema says NOT NULL",
    '{"n":null}': {},
    '{"l":[{}]}': "l[].x: missing, but the schema says NOT NULL",
    '{"m":{"k":{"x":null}}}': "m[].x: missing, but the schema says NOT NULL",
}  # fmt: skip


def test_json_values(decoded):
    found = decoded(Decode("json", SCHEMA), *(text.encode() for text in JSON))
    assert dict(zip(JSON, found, strict=True)) == JSON


CSV = {
    "ann;7;x": {"u": "ann", "a": 7, "s": "x"},
    "ann;7;x\n": {"u": "ann", "a": 7, "s": "x"},
    "ann;7;x\r\n": {"u": "ann", "a": 7, "s": "x"},
    ";;": {},
    '"a;b";7;"x\ny"': {"u": "a;b", "a": 7, "s": "x\ny"},
    'ann;7;"x': "the value is not CSV of 3 columns",
    '"ann;7;x': "the value is not CSV of 3 columns",
    "ann;7": "the value is not CSV of 3 columns",
    "ann;7;x;y": "the value is not CSV of 3 columns",
    "ann;7;x;": "the value is not CSV of 3 columns",
    "ann;x;x": "a: the value does not fit BIGINT",
    "ann;7.0;x": "a: the value does not fit BIGINT",
    "ann;9223372036854775808;x": "a: the value does not fit BIGINT",
    "ann;7;x\nbob": "the value has a line break outside of quotes",
    "ann;7;x\nbob;8;y": "the value is not CSV of 3 columns",
    "\n": "the value is empty",
}


@pytest.mark.parametrize("separator", [";", "\\t", "||"])
def test_csv_values(decoded, separator):
    own = separator.replace("\\t", "\t")
    texts = [text.replace(";", own).encode() for text in CSV]
    expected = [{name: value.replace(";", own) if isinstance(value, str) else value for name, value in each.items()}
                if isinstance(each, dict) else each for each in CSV.values()]  # fmt: skip
    decode = Decode("csv", "u STRING, a BIGINT, s STRING", {"sep": separator})
    assert dict(zip(CSV, decoded(decode, *texts), strict=True)) == dict(zip(CSV, expected, strict=True))


def test_csv_of_one_column(decoded):
    found = decoded(Decode("csv", "s STRING"), b"x", b'"x', b'"x"', b"x\ny", b'"x\ny"', b"x\n")
    broken = "the value has a line break outside of quotes"
    assert found == [{"s": "x"}, "the value is not CSV of 1 columns", {"s": "x"}, broken, {"s": "x\ny"}, {"s": "x"}]


@pytest.mark.parametrize("format_", ["json", "csv"])
def test_a_thread_of_its_own_decodes(spark, format_):
    raw = spark.createDataFrame([], spark_schema(include_headers=False))
    with ThreadPoolExecutor(1) as threads:
        frame = threads.submit(decode_frame, Decode(format_, "s STRING", {"sep": ";"}), raw).result()
    assert frame.columns[0] == "s"


def test_the_name_of_the_mark_is_taken(spark):
    with pytest.raises(UnsuitableDecode, match="every event already has a column _headrace_end"):
        columns_of(Decode("json", "_headrace_end STRING"))


# -------------------------------------------------------------------------------------------------------- any document

VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5)),
    lambda inside: st.one_of(st.lists(inside, max_size=3), st.dictionaries(st.text(max_size=3), inside, max_size=3)),
    max_leaves=5,
)
DOCUMENTS = st.builds(
    json.dumps,
    st.dictionaries(st.sampled_from(["a", "b", "", "é"]), VALUES, max_size=3),
    indent=st.sampled_from([None, 0, 2]),
    ensure_ascii=st.booleans(),
)
#: Digits and signs only: Spark knows more names of numbers than Python does.
PIECES = st.text('{}[],:"\\/ \t\n\r09-.', max_size=4)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A document; with something behind it, or in it, or taken out of it."""
    text = draw(st.sampled_from(["", "\n"])) + draw(DOCUMENTS)
    at, until = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
    kind = draw(st.sampled_from(["whole", "behind", "another", "inside", "without"]))
    if kind == "inside":
        return text[:at] + draw(PIECES) + text[at:]
    if kind == "without":
        return text[:at] + text[until:]
    return (
        text
        + {"whole": draw(st.sampled_from(["", " ", "\r\n"])), "behind": draw(PIECES), "another": draw(DOCUMENTS)}[kind]
    )


def _is_one_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


@settings(max_examples=10, deadline=None)
@given(documents=st.lists(texts(), min_size=30, max_size=100))
def test_a_value_decodes_if_it_is_one_document_and_nothing_else(spark, documents):
    rows = [(None, text.encode(), "t", 0, offset, AT, 0) for offset, text in enumerate(documents)]
    raw = spark.createDataFrame(rows, spark_schema(include_headers=False))
    found = decode_frame(Decode("json", "a STRING, b STRING"), raw).toArrow().sort_by("_offset")
    for text, error in zip(documents, found.column("_error").to_pylist(), strict=True):
        assert (error is None) == _is_one_object(text), (text, error)
