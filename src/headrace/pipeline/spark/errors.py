"""Explains Spark's exceptions about a query or a schema in one plain line, and finds their position in the text.

Spark's own message has a code in brackets, names in backquotes, a SQLSTATE, a search path and a plan. A reader needs to
know what is wrong, where, and which name was probably meant. The names that exist come from Spark's proposal and from
the caller.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from headrace.pipeline.project.toml_files import did_you_mean

if TYPE_CHECKING:
    from pyspark.errors import PySparkException

#: Spark counts columns from 0 in messages, and from 1 in the context below them.
_POSITION = re.compile(r"line (\d+),? pos (\d+)")
_CONTEXT = re.compile(r"\(line (\d+), position (\d+)\)")
_NAME = re.compile(r"`((?:[^`]|``)*)`")
_TYPES = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "STRING", "BINARY", "DATE",
    "TIMESTAMP", "TIMESTAMP_NTZ", "INTERVAL", "ARRAY", "MAP", "STRUCT", "VARIANT",
)  # fmt: skip


class KnownNames(NamedTuple):
    """Names that a query may use.

    :ivar functions: called only if a function is unknown, because it takes a while.
    :ivar why_no_table: explains why a table does not exist; None to suggest a similar name instead.
    """

    columns: Collection[str] = ()
    tables: Collection[str] = ()
    functions: Callable[[], Collection[str]] = tuple
    why_no_table: Callable[[str], str | None] = lambda _name: None


class SyntaxProblem(NamedTuple):
    """A syntax error that Spark's parser reports, with its line and column, both from 1."""

    message: str
    place: tuple[int, int] | None


def syntax_problem(text: str) -> SyntaxProblem:
    """
    :param text: the message of Spark's parser.
    """
    return SyntaxProblem(_plain(text) or "this is not SQL", _place_in(text))


def place_of(error: PySparkException) -> tuple[int, int] | None:
    """Line and column, both from 1; None if Spark does not give them."""
    return _place_in(str(error))


def _place_in(text: str) -> tuple[int, int] | None:
    if found := _POSITION.search(text):
        return int(found[1]), int(found[2]) + 1
    if found := _CONTEXT.search(text):
        return int(found[1]), int(found[2])
    return None


def explain(error: PySparkException, known: KnownNames | None = None) -> str:
    """The error in one line."""
    condition = (error.getCondition() or "").partition(".")[0]
    explanation = _EXPLANATIONS.get(condition)
    if explanation is None:
        return _plain_message(error)
    return explanation(error.getMessageParameters() or {}, known or KnownNames())


def _plain_message(error: PySparkException) -> str:
    return _plain(str(error)) or type(error).__name__


def _plain(message: str) -> str:
    text = next((line.strip() for line in message.splitlines() if line.strip()), "")
    text = re.sub(r"^\[[A-Z0-9_.]+\] ", "", text)
    text = re.sub(r"\s*SQLSTATE: \w+.*$|;$|;? line \d+,? pos \d+;?$", "", text)
    text = re.sub(r" (Please, refer|For more information|Please ensure|You can reference) .*$", "", text)
    return _NAME.sub(lambda name: _shown(name[1].replace("``", "`")), text)


def _shown(name: str) -> str:
    return name if re.fullmatch(r"\w+", name) else repr(name)


def _names(quoted: str) -> list[str]:
    """```a`, `t`.`b``` -> a, t.b"""
    found = re.findall(r"`(?:[^`]|``)*`(?:\.`(?:[^`]|``)*`)*", quoted)
    return [".".join(part.replace("``", "`") for part in _NAME.findall(each)) for each in found]


# ------------------------------------------------------------------------------------------------- errors by condition


def _unknown_column(parameters: Mapping[str, str], known: KnownNames) -> str:
    (name, *_) = _names(parameters.get("objectName", "")) or ["?"]
    proposed = _names(parameters.get("proposal", ""))
    if "." not in name:
        names = {each.rpartition(".")[2] for each in proposed} | set(known.columns)
        return f"there is no column {name}{did_you_mean(name, names)}"
    hint = did_you_mean(name, proposed)
    if "did you mean" not in hint:  # the part after the point may be right
        last = name.rpartition(".")[2]
        nearest = [each for each in proposed if each.rpartition(".")[2].lower() == last.lower()]
        hint = f": did you mean {nearest[0]}?" if nearest else hint
    return f"there is no column {name}{hint}"


def _unknown_field(parameters: Mapping[str, str], _known: KnownNames) -> str:
    (name, *_) = _names(parameters.get("fieldName", "")) or ["?"]
    return f"there is no field {name}{did_you_mean(name, _names(parameters.get('fields', '')))}"


def _unknown_table(parameters: Mapping[str, str], known: KnownNames) -> str:
    (name, *_) = _names(parameters.get("relationName", "")) or ["?"]
    return known.why_no_table(name) or f"there is no table {name}{did_you_mean(name, known.tables)}"


def _unknown_function(parameters: Mapping[str, str], known: KnownNames) -> str:
    (name, *_) = _names(parameters.get("routineName", "")) or ["?"]
    return f"there is no function {name}{did_you_mean(name, known.functions())}"


def _unknown_type(parameters: Mapping[str, str], _known: KnownNames) -> str:
    name = parameters.get("typeName", "").strip('"')
    return f"there is no type {name}{did_you_mean(name, _TYPES)}"


_EXPLANATIONS: dict[str, Callable[[Mapping[str, str], KnownNames], str]] = {
    "UNRESOLVED_COLUMN": _unknown_column,
    "FIELD_NOT_FOUND": _unknown_field,
    "TABLE_OR_VIEW_NOT_FOUND": _unknown_table,
    "UNRESOLVED_ROUTINE": _unknown_function,
    "UNSUPPORTED_DATATYPE": _unknown_type,
}
