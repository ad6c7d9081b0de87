"""Reads a part of a page that may fail alone: the part then shows why, and the rest of the page works."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from headrace.client.errors import HeadraceError
from headrace.console.problems import Problem, explain

T = TypeVar("T")


async def attempt(asked: Awaitable[T], fallback: T) -> tuple[T, Problem | None]:
    """Returns the answer; or the fallback with the reason, if the cluster does not allow or support the question."""
    try:
        return await asked, None
    except HeadraceError as error:
        return fallback, explain(error)
