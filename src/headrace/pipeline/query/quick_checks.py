"""Checks the SQL of views without Spark, in milliseconds.

sqlglot parses Spark's dialect, but not all of it: Spark accepts some queries that sqlglot rejects. So only these
problems are certain:

* the text is empty, or begins with a word that begins no query in Spark's grammar;
* a parenthesis has no partner;
* a time such as TIMESTAMP 'now', which Spark's parser replaces by the present time, so that no later check sees it;
* a name in FROM is neither a table of the view nor defined by a WITH.

Whatever else sqlglot rejects is a doubt: the user is told of it at once, and Spark's own parser decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.toml_files import Problem, did_you_mean
from headrace.pipeline.query.determinism import clock_word_reason, is_clock_word
from headrace.pipeline.query.tables import missing_table, table_names

if TYPE_CHECKING:
    from sqlglot import exp
    from sqlglot.tokenizer_core import Token

#: The words that can begin a query (``queryPrimary`` and ``ctes`` in Spark's grammar).
_FIRST_WORDS = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE"})


#: The types that can stand before a text that is a time.
_TIME_TYPES = frozenset({"DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ"})


class SqlCheck(NamedTuple):
    """The facts about the SQL of a view that are known without Spark.

    :ivar problem: certainly wrong.
    :ivar doubt: sqlglot rejects the query. Spark may accept the query nevertheless.
    """

    problem: Problem | None = None
    doubt: Problem | None = None


def check_sql(definition: ViewDefinition) -> SqlCheck:
    """Checks the syntax of a view's query. A query in Python has no problem here."""
    query = definition.query
    if query.is_python or not query.file:
        return SqlCheck()
    from sqlglot.dialects.spark import Spark
    from sqlglot.errors import ParseError, TokenError

    dialect = Spark()
    try:
        tokens = dialect.tokenize(query.text)
        certain = _first_word(tokens) or _parentheses(tokens) or _present_time(tokens)
        if certain is not None:
            return SqlCheck(problem=_placed(query.file, query.text, *certain))
        mark_window_functions(tokens)
        parsed = dialect.parser().parse(tokens, query.text)
    except ParseError as error:
        found = error.errors[0]
        # sqlglot counts to the end of the word that it rejects.
        column = max(1, int(found["col"]) - len(found["highlight"]) + 1)
        message = f"sqlglot rejects {found['highlight']!r} ({found['description']})"
        return SqlCheck(doubt=Problem(Path(query.file), int(found["line"]), message, column))
    except TokenError:
        return SqlCheck(doubt=Problem(Path(query.file), None, "sqlglot cannot split the query into words"))
    except RecursionError:  # a query with very many terms
        return SqlCheck()
    return SqlCheck(problem=_unknown_table(definition, parsed))


def mark_window_functions(tokens: list[Token]) -> None:
    """Makes ``window(...)`` a function: sqlglot takes the word for a WINDOW clause in GROUP BY window(at, '1 hour')."""
    from sqlglot import TokenType

    for token, following in pairwise(tokens):
        if token.token_type is TokenType.WINDOW and following.token_type is TokenType.L_PAREN:
            token.token_type = TokenType.VAR


def _unknown_table(definition: ViewDefinition, parsed: Sequence[exp.Expr | None]) -> Problem | None:
    """The first name in FROM that is not a table. A name that any WITH of the query defines counts as a table."""
    from sqlglot import exp

    known = table_names(definition)
    defined = {name.lower() for name in known}
    statements = [statement for statement in parsed if statement is not None]
    defined |= {each.alias.lower() for statement in statements for each in statement.find_all(exp.CTE)}
    for statement in statements:
        for table in statement.find_all(exp.Table):
            # Names with a point, such as parquet.`/a/file`, and functions are for Spark to judge.
            if table.db or not isinstance(table.this, exp.Identifier) or table.name.lower() in defined:
                continue
            name = table.name
            message = missing_table(definition, name) or f"there is no table {name}{did_you_mean(name, known)}"
            at = int(table.this.meta.get("start", 0))
            return _placed(definition.query.file, definition.query.text, at, message)
    return None


def _first_word(tokens: list[Token]) -> tuple[int, str] | None:
    """The position of the first word and a message, if that word cannot begin a query."""
    words = [token for token in tokens if token.text != "("]
    if not words or words[0].text == ";":
        return 0, "the file has no query: write one SELECT or WITH"
    first = words[0]
    if first.text.upper() in _FIRST_WORDS:
        return None
    return first.start, f"a view needs a query: one SELECT or WITH, which cannot begin with {first.text!r}"


def _parentheses(tokens: list[Token]) -> tuple[int, str] | None:
    from sqlglot import TokenType

    opened: list[Token] = []
    for token in tokens:
        if token.token_type is TokenType.L_PAREN:
            opened.append(token)
        elif token.token_type is TokenType.R_PAREN:
            if not opened:
                return token.start, "there is no '(' for this ')'"
            opened.pop()
    return (opened[-1].start, "there is no ')' for this '('") if opened else None


def _present_time(tokens: list[Token]) -> tuple[int, str] | None:
    """The position of the first time that Spark's parser reads from the clock, and a message."""
    from sqlglot import TokenType

    for type_, text in pairwise(tokens):
        is_time = type_.text.upper() in _TIME_TYPES and text.token_type is TokenType.STRING
        if is_time and is_clock_word(text.text):
            return type_.start, f"a view needs one answer for the same records, but {clock_word_reason(text.text)}"
    return None


def _placed(file: str, text: str, at: int, message: str) -> Problem:
    return Problem(Path(file), text.count("\n", 0, at) + 1, message, at - (text.rfind("\n", 0, at) + 1) + 1)
