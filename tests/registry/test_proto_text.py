"""Checks that the text of a descriptor compiles to the same descriptor."""

from __future__ import annotations

import pytest

from headrace.registry.formats.parsing import Resolved, SchemaParser
from headrace.registry.formats.proto_text import proto_text
from headrace.registry.schemas import PROTOBUF, SchemaText

PARSER = SchemaParser()
TEXTS = [
    'syntax = "proto3"; package a.b; message M { optional int32 x = 1; repeated string y = 2 [json_name = "why"]; }',
    'syntax = "proto3"; message M { oneof o { int32 a = 1; M b = 2; } int32 c = 3; map<int64, M> m = 4; }',
    'syntax = "proto3"; import public "google/protobuf/any.proto"; message M { google.protobuf.Any a = 1; }',
    'syntax = "proto3"; option java_package = "a\\"b"; option java_multiple_files = true; message M { bool b = 1 '
    "[deprecated = true]; message N { enum E { option allow_alias = true; Z = 0; Y = 0; } E e = 1; } }",
    'syntax = "proto3"; message M { repeated int32 p = 1 [packed = false]; reserved 2, 4 to 6, 100 to max; '
    'reserved "x"; } enum E { Z = 0; reserved 1 to 3, 5; reserved "Q"; }',
    'syntax = "proto2"; message M { required int32 a = 1; optional string s = 2 [default = "x\\ny"]; optional bytes b '
    '= 3 [default = "\\001z"]; optional E e = 4 [default = ONE]; extensions 100 to 199; } enum E { ONE = 1; } '
    "extend M { optional int32 more = 100; }",
    'syntax = "proto3"; message M {} service S { rpc A (M) returns (stream M); rpc B (stream M) returns (M); }',
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_written_from_descriptors_is_the_same_schema(text: str) -> None:
    parsed = PARSER.parse(Resolved(SchemaText(PROTOBUF, text)))
    again = PARSER.parse(Resolved(SchemaText(PROTOBUF, proto_text(parsed.content.file))))
    assert again.identity == parsed.identity
    assert parsed.normal_text() == proto_text(parsed.content.file)


def test_what_text_cannot_say_is_stored_as_it_came() -> None:
    text = (
        'syntax = "proto3"; import "google/protobuf/descriptor.proto"; extend google.protobuf.FieldOptions '
        "{ string about = 50001; } message M { int32 x = 1 [(about) = 'custom']; }"
    )
    parser = SchemaParser()
    encoded = parser.serialized(Resolved(SchemaText(PROTOBUF, text)))
    assert parser.parse(Resolved(SchemaText(PROTOBUF, encoded))).stored_text == encoded
