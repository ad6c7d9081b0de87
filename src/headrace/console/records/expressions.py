"""Compiles regular expressions of readers, in the syntax of RE2, whose matching takes time linear in the text."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

LONGEST_EXPRESSION = 1_000
_MAX_MEMORY_BYTES = 8 << 20


@lru_cache(maxsize=64)
def compiled(text: str) -> Callable[[bytes], bool]:
    """Returns a function that says whether the expression matches anywhere in some bytes.

    The expression is one of UTF-8. ``(?i)`` at its beginning makes it match in upper or lower case.

    :raises ValueError: if RE2 does not accept the expression.
    """
    if len(text) > LONGEST_EXPRESSION:
        raise ValueError(f"the expression has more than {LONGEST_EXPRESSION} characters")
    import re2  # type: ignore[import-untyped]

    options = re2.Options()
    options.max_mem = _MAX_MEMORY_BYTES
    options.never_capture = True
    options.log_errors = False
    try:
        search: Callable[[bytes], Any] = re2.compile(text.encode("utf-8", "replace"), options).search
    except re2.error as error:
        detail = error.args[0] if error.args else "not accepted by RE2"
        reason = detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
        raise ValueError(f"not an expression of RE2: {reason}") from None
    return lambda data: search(data) is not None


def is_local(text: str) -> bool:
    """Whether a match depends on nothing but the characters that it covers, so that it is also a match in a longer
    text. Expressions with ``^``, ``$`` or a ``\\`` before a letter may depend on their place."""
    return not any(sign in text for sign in ("^", "$", "\\b", "\\B", "\\A", "\\z", "\\Z", "\\C"))
