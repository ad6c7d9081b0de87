"""Finds the names of the tables that a query reads, without Spark.

A query in SQL is parsed by sqlglot, which knows Spark's dialect. Names of common table expressions are not tables. If
sqlglot cannot parse the query, the words after FROM and JOIN count, so that a query that only Spark understands still
works. A query in Python names its tables by the parameters of its function.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

from headrace.pipeline.project.decode import FileText

if TYPE_CHECKING:
    from sqlglot import exp

_COMMENTS_AND_TEXTS = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_AFTER_FROM = re.compile(
    r"\b(?:FROM|JOIN|TABLE)\s+(?!(?:VALUES|LATERAL|TABLE)\b)(`[^`]+`|[A-Za-z_]\w*+)(?!\s*[.(])", re.IGNORECASE
)


class TableName(NamedTuple):
    """
    :ivar line: where the name stands in the text of the query, from 1; so is ``column``.
    """

    name: str
    line: int
    column: int


def tables_of_sql(text: str) -> list[TableName]:
    """The tables, each once, in the order of the text. Names are compared without regard to case."""
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        statements = sqlglot.parse(text, read="spark")
    except (SqlglotError, RecursionError):
        return _words_after_from(text)
    found = []
    for statement in statements:
        for table in statement.find_all(exp.Table) if statement is not None else ():
            name = table.name
            if name and not table.db and isinstance(table.this, exp.Identifier) and not _is_cte(table):
                found.append(_placed(text, name, int(table.this.meta.get("start", 0))))
    return _once(found or _words_after_from(text))


def _is_cte(table: exp.Table) -> bool:
    """Whether a WITH around the table defines its name. An expression of a WITH knows only those before itself."""
    from sqlglot import exp

    wanted = table.name.lower()
    inside: exp.Expr = table
    while inside.parent is not None:
        outside = inside.parent
        if isinstance(outside, exp.With):
            known = outside.expressions[: outside.expressions.index(inside) + bool(outside.args.get("recursive"))]
            if any(each.alias.lower() == wanted for each in known):
                return True
        elif not isinstance(inside, exp.With):
            with_ = outside.args.get("with_") or outside.args.get("with")
            if with_ is not None and any(each.alias.lower() == wanted for each in with_.expressions):
                return True
        inside = outside
    return False


def _words_after_from(text: str) -> list[TableName]:
    visible = _COMMENTS_AND_TEXTS.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    defined = {each.lower() for each in re.findall(r"(\w+)\s+AS\s*\(", visible, re.IGNORECASE)}
    found = [_placed(text, each[1].strip("`"), each.start(1)) for each in _AFTER_FROM.finditer(visible)]
    return _once([each for each in found if each.name.lower() not in defined])


def _placed(text: str, name: str, at: int) -> TableName:
    return TableName(name, text.count("\n", 0, at) + 1, at - (text.rfind("\n", 0, at) + 1) + 1)


def _once(found: list[TableName]) -> list[TableName]:
    first: dict[str, TableName] = {}
    for each in sorted(found, key=lambda each: (each.line, each.column)):
        first.setdefault(each.name.lower(), each)
    return list(first.values())


def parameters_of(query: FileText) -> list[TableName] | None:
    """The parameters of a query's Python function; None if the file does not define the function by ``def``."""
    try:
        body = ast.parse(query.text).body
    except SyntaxError:
        return None
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name == query.function:
            arguments = [*node.args.posonlyargs, *node.args.args]
            return [TableName(each.arg, each.lineno, each.col_offset + 1) for each in arguments]
    return None
