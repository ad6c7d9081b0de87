"""Places the problems of a view's query: the line and column of its SQL, or the line of its Python function.

Spark says where most errors are. For the others, and for what Headrace itself refuses, the place is found by words: the
first name that the message has in common with the text of the query, outside of its comments and quotes. A message that
shares no name with the text points at the first word of the query.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.toml_files import Problem
from headrace.pipeline.spark.errors import Known, explained, place_of

if TYPE_CHECKING:
    from pyspark.errors import PySparkException

#: Comments, and texts in quotes; names in backquotes are kept.
_HIDDEN = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
#: In a message: names of functions, words of SQL, names in quotes and names with a table.
_WORDS = re.compile(r"(\w+)\(|\b([A-Z]{2,})\b|['\"](\w+)['\"]|\b\w+\.(\w+)\b|\b(\w*_\w+)\b")


def sql_problem(definition: ViewDefinition, error: PySparkException, known: Known) -> Problem:
    """What Spark says of a query in SQL."""
    message = explained(error, known)
    line, column = place_of(error) or _place_by_words(definition.query.text, message)
    return Problem(Path(definition.query.file), line, message, column)


def query_problem(definition: ViewDefinition, message: str, name: str = "", *, number: int = 0) -> Problem:
    """A problem of the query as a whole.

    :param name: the name in the query that the message is about, if there is one.
    :param number: where the name occurs several times, which one is meant, from 0.
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
    """The same text with spaces for comments and texts in quotes, so that all else stays where it is."""
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
