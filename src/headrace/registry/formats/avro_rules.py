"""Checks the rules of Avro's specification that fastavro does not check.

- The name of a type or a field has letters, digits and ``_``, and does not begin with a digit. A namespace, and the
  full name of a type, is a list of such names with dots between them. Aliases follow the same rules.
- The fields of a record have different names, and so do the symbols of an enum.
- A union does not contain a union, nor two schemas of the same type, unless they are named types.
- The size of a fixed is a whole number, and not negative.
- The order of a field is ascending, descending or ignore.

Only new schemas are checked. A version that another registry has accepted stays in use.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from headrace.registry.formats.parsing import InvalidSchema

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_ORDERS = ("ascending", "descending", "ignore")
_NAMED = ("record", "error", "enum", "fixed")


def check(schema: Any) -> None:
    """
    :param schema: a schema as the client wrote it, which fastavro has parsed.
    :raises InvalidSchema: if it breaks a rule.
    """
    _check(schema, "")


def _check(schema: Any, namespace: str) -> None:
    if isinstance(schema, list):
        _check_union(schema, namespace)
    elif isinstance(schema, dict):
        kind = schema.get("type")
        if isinstance(kind, str):
            _check_type(kind, schema, namespace)
        else:
            _check(kind, namespace)


def _check_type(kind: str, schema: dict[str, Any], namespace: str) -> None:
    if kind in _NAMED:
        namespace = _namespace(schema, namespace)
        _check_aliases(schema, _check_full_name)
    if kind in ("record", "error"):
        _check_fields(schema, namespace)
    elif kind == "enum":
        _check_symbols(schema)
    elif kind == "fixed":
        size = schema.get("size")
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise InvalidSchema(f"the size {_shown(size)} of the fixed {_shown(schema.get('name'))} is not possible")
    elif kind == "array":
        _check(schema.get("items"), namespace)
    elif kind == "map":
        _check(schema.get("values"), namespace)


def _namespace(schema: dict[str, Any], outer: str) -> str:
    """Checks the name of a type. Returns the namespace of the types in it."""
    name, given = schema.get("name"), schema.get("namespace")
    _check_full_name(name)
    if isinstance(name, str) and "." in name:
        return name.rpartition(".")[0]
    if given is None:
        return outer
    if given != "":
        _check_full_name(given, "namespace")
    return str(given)


def _check_fields(schema: dict[str, Any], namespace: str) -> None:
    fields = schema.get("fields")
    if not isinstance(fields, list):
        raise InvalidSchema(f"the record {_shown(schema.get('name'))} has no list of fields")
    names: set[str] = set()
    for field in fields:
        name = field.get("name")
        _check_name(name, "field")
        if name in names:
            raise InvalidSchema(f"the record {_shown(schema.get('name'))} has two fields {_shown(name)}")
        names.add(name)
        _check_aliases(field, _check_name)
        order = field.get("order")
        if order is not None and order not in _ORDERS:
            raise InvalidSchema(f"the order {_shown(order)} of the field {_shown(name)} is unknown")
        _check(field.get("type"), namespace)


def _check_symbols(schema: dict[str, Any]) -> None:
    symbols = schema.get("symbols")
    if not isinstance(symbols, list):
        raise InvalidSchema(f"the enum {_shown(schema.get('name'))} has no list of symbols")
    for symbol in symbols:
        _check_name(symbol, "symbol")
    if len(set(symbols)) != len(symbols):
        raise InvalidSchema(f"the enum {_shown(schema.get('name'))} has a symbol twice")
    default = schema.get("default")
    if default is not None and default not in symbols:
        raise InvalidSchema(f"the default {_shown(default)} of the enum {_shown(schema.get('name'))} is not a symbol")


def _check_union(branches: list[Any], namespace: str) -> None:
    seen: set[str] = set()
    for branch in branches:
        if isinstance(branch, list):
            raise InvalidSchema("a union contains a union")
        _check(branch, namespace)
        name = _branch_name(branch, namespace)
        if name in seen:
            raise InvalidSchema(f"a union has the type {_shown(name)} twice")
        seen.add(name)


def _branch_name(branch: Any, namespace: str) -> str:
    """The name by which a branch differs from the others of a union: its type, or the full name of a named type."""
    if isinstance(branch, str):
        return branch
    kind = branch.get("type")
    if kind not in _NAMED:
        return kind if isinstance(kind, str) else _branch_name(kind, namespace)
    name = str(branch["name"])
    inner = _namespace(branch, namespace)
    return name if "." in name or not inner else f"{inner}.{name}"


def _check_aliases(schema: dict[str, Any], check_name: Callable[[Any, str], None]) -> None:
    aliases = schema.get("aliases")
    if aliases is None:
        return
    if not isinstance(aliases, list):
        raise InvalidSchema(f"the aliases {_shown(aliases)} are not a list")
    for alias in aliases:
        check_name(alias, "alias")


def _check_full_name(name: Any, what: str = "name") -> None:
    if not isinstance(name, str) or not all(_NAME.fullmatch(part) for part in name.split(".")):
        raise InvalidSchema(f"the {what} {_shown(name)} is not a name of Avro")


def _check_name(name: Any, what: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidSchema(f"the {what} {_shown(name)} is not a name of Avro")


def _shown(value: Any) -> str:
    return repr(value)[:100]
