"""Finds the place of a problem in a view's query: line and column of its SQL, or the line of its Python function.

Spark says where most errors are. For other errors, and for queries that Headrace refuses, the place is the first name
that occurs both in the message and in the text of the query, outside of comments and quotes. If there is no such name,
the place is the first word of the query.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.toml_files import Problem
from headrace.pipeline.spark.errors import KnownNames, explain, place_of

if TYPE_CHECKING:
    from pyspark.errors import PySparkException

#: Comments and texts in quotes. Names in backquotes are kept.
_HIDDEN = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
#: Names in a message: functions, words of SQL, names in quotes, and names with a table.
_WORDS = re.compile(r"(\w+)\(|\b([A-Z]{2,})\b|['\"](\w+)['\"]|\b\w+\.(\w+)\b|\b(\w*_\w+)\b")


def sql_problem(definition: ViewDefinition, error: PySparkException, known: KnownNames) -> Problem:
    """The problem that Spark reports for a query in SQL."""
    message = explain(error, known)
    line, column = place_of(error) or _place_by_words(definition.query.text, message)
    return Problem(Path(definition.query.file), line, message, column)


def query_problem(definition: ViewDefinition, message: str, name: str = "", *, number: int = 0) -> Problem:
    """A problem of the query as a whole.

    :param name: the name in the query that the message is about, if there is one.
    :param number: which occurrence of the name is meant, from 0.
    """
    query = definition.query
    if query.is_python:
        found = re.search(rf"^def {re.escape(query.function)}\b", query.text, re.MULTILINE)
        return Problem(Path(query.file), query.text.count("\n", 0, found.start()) + 1 if found else None, message)
    visible = _visible(query.text)
    places = list(re.finditer(rf"(?<!\w){re.escape(name)}(?!\w)", visible, re.IGNORECASE)) if name else []
    if places:
        line, column = _line_and_column(visible, places[min(number, len(places) - 1)].start())
    else:
        line, column = _place_by_words(query.text, message)
    return Problem(Path(query.file), line, message, column)


def _visible(text: str) -> str:
    """The text with spaces in place of comments and quoted texts, so that positions stay the same."""
    return _HIDDEN.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def _place_by_words(text: str, message: str) -> tuple[int, int]:
    visible = _visible(text)
    for found in _WORDS.finditer(message):
        word = next(group for group in found.groups() if group)
        if place := re.search(rf"(?<!\w){re.escape(word)}(?!\w)", visible, re.IGNORECASE):
            return _line_and_column(visible, place.start())
    first = re.search(r"\S", visible)
    return _line_and_column(visible, first.start() if first else 0)


def _line_and_column(text: str, at: int) -> tuple[int, int]:
    return text.count("\n", 0, at) + 1, at - (text.rfind("\n", 0, at) + 1) + 1
