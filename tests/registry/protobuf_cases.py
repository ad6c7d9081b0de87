"""Lists pairs of Protobuf schemas with what Protobuf's guide says about changes of messages.

A case: its name, the earlier schema, the new schema, whether the new one reads data of the earlier one (backward), and
the other way round (forward). ``message()`` is a file with one message M.
"""

from __future__ import annotations


def message(fields: str, more: str = "", syntax: str = "proto3", package: str = "p") -> str:
    return f'syntax = "{syntax}";\npackage {package};\nmessage M {{\n{fields}\n}}\n{more}\n'


_A = "int32 a = 1;"
_N = "message N { int32 x = 1; }"

CASES: list[tuple[str, str, str, bool, bool]] = [
    ("the same", message(_A), message(_A), True, True),
    ("field added", message(_A), message(_A + "string b = 2;"), True, True),
    ("field removed", message(_A + "string b = 2;"), message(_A), True, True),
    ("field renamed", message(_A), message("int32 z = 1;"), True, True),
    ("field renumbered", message(_A), message("int32 a = 2;"), True, True),
    ("another package", message(_A), message(_A, package="q"), False, False),
    ("no package", message(_A), message(_A).replace("package p;", ""), False, False),
    ("int32 to int64", message(_A), message("int64 a = 1;"), True, True),
    ("int32 to uint32", message(_A), message("uint32 a = 1;"), True, True),
    ("int32 to bool", message(_A), message("bool a = 1;"), True, True),
    ("int32 to sint32", message(_A), message("sint32 a = 1;"), False, False),
    ("sint32 to sint64", message("sint32 a = 1;"), message("sint64 a = 1;"), True, True),
    ("fixed32 to sfixed32", message("fixed32 a = 1;"), message("sfixed32 a = 1;"), True, True),
    ("fixed64 to sfixed64", message("fixed64 a = 1;"), message("sfixed64 a = 1;"), True, True),
    ("fixed32 to fixed64", message("fixed32 a = 1;"), message("fixed64 a = 1;"), False, False),
    ("int32 to fixed32", message(_A), message("fixed32 a = 1;"), False, False),
    ("int32 to string", message(_A), message("string a = 1;"), False, False),
    ("string to bytes", message("string a = 1;"), message("bytes a = 1;"), True, True),
    ("float to double", message("float a = 1;"), message("double a = 1;"), False, False),
    ("int32 to enum", message(_A), message("E a = 1;", "enum E { Z = 0; }"), True, True),
    ("symbol added", message("E a = 1;", "enum E { Z = 0; }"), message("E a = 1;", "enum E { Z = 0; Y = 1; }"), True,
     True),
    ("scalar to message", message(_A), message("N a = 1;", _N), False, False),
    ("message to another", message("N a = 1;", _N), message("O a = 1;", _N + "message O { int32 x = 1; }"), False,
     False),
    ("message added", message(_A), message(_A, _N), True, False),
    ("message removed", message(_A, _N), message(_A), False, True),
    ("nested message removed", message("message I { int32 x = 1; }" + _A), message(_A), False, True),
    ("field of a nested message changed", message("N a = 1;", _N),
     message("N a = 1;", "message N { string x = 1; }"), False, False),
    ("number repeated", message(_A), message("repeated int32 a = 1;"), False, False),
    ("text repeated", message("string a = 1;"), message("repeated string a = 1;"), True, True),
    ("message repeated", message("N a = 1;", _N), message("repeated N a = 1;", _N), True, True),
    ("optional in proto3", message(_A), message("optional int32 a = 1;"), True, True),
    ("required added", message("optional int32 a = 1;", syntax="proto2"),
     message("optional int32 a = 1; required int32 b = 2;", syntax="proto2"), False, False),
    ("required to optional", message("required int32 a = 1;", syntax="proto2"),
     message("optional int32 a = 1;", syntax="proto2"), False, False),
    ("oneof with one field", message(_A), message("oneof o { int32 a = 1; }"), True, True),
    ("oneof with a new field", message(_A), message("oneof o { int32 a = 1; string b = 2; }"), True, False),
    ("two fields into a oneof", message(_A + "string b = 2;"), message("oneof o { int32 a = 1; string b = 2; }"), False,
     True),
    ("field of a oneof removed", message("oneof o { int32 a = 1; string b = 2; }"), message("oneof o { int32 a = 1; }"),
     False, True),
    ("map kept", message("map<string, int32> a = 1;"), message("map<string, int32> a = 1;"), True, True),
    ("map of promoted", message("map<string, int32> a = 1;"), message("map<string, int64> a = 1;"), True, True),
    ("map of others", message("map<string, int32> a = 1;"), message("map<string, string> a = 1;"), False, False),
    ("reserved after removal", message(_A + "string b = 2;"), message(_A + 'reserved 2; reserved "b";'), True, True),
    ("recursive", message("M a = 1; int32 b = 2;"), message("M a = 1; int64 b = 2;"), True, True),
    ("service added", message(_A), message(_A, "service S { rpc Do (M) returns (M); }"), True, True),
]  # fmt: skip
