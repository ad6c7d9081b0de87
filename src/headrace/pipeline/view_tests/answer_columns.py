"""The columns of a view's answer without Spark, as far as sqlglot knows them."""

from __future__ import annotations

from functools import lru_cache

from headrace.pipeline.project.definition import ViewDefinition


def answer_columns(definition: ViewDefinition) -> dict[str, str] | None:
    """The names of the columns, by the names that a test may write, in lower case; None if only Spark knows them.

    That is so for a query in Python, for ``*``, for expressions without AS, and for what sqlglot rejects. A column that
    may be a window gives its two columns as well (``query.view_query``).
    """
    if definition.query.is_python or not definition.query.text:
        return None
    return _columns(definition.query.text)


@lru_cache(maxsize=256)
def _columns(text: str) -> dict[str, str] | None:
    from sqlglot import exp
    from sqlglot.dialects.spark import Spark
    from sqlglot.errors import SqlglotError

    from headrace.pipeline.query.quick_checks import mark_window_functions

    dialect = Spark()
    try:
        tokens = dialect.tokenize(text)
        mark_window_functions(tokens)
        (parsed,) = dialect.parser().parse(tokens, text)
    except (SqlglotError, RecursionError, ValueError):
        return None
    if not isinstance(parsed, exp.Query) or not parsed.selects:
        return None
    names: dict[str, str] = {}
    for each in parsed.selects:
        if each.is_star or not isinstance(each, exp.Alias | exp.Column) or not each.alias_or_name:
            return None
        name = each.alias_or_name
        names |= dict.fromkeys((name.lower(), f"{name}_start".lower(), f"{name}_end".lower()), name)
    return names
