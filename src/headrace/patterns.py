"""Regular expressions that clients send to a broker, in the syntax of RE2 (KIP-848, KIP-1152).

A broker compiles an expression that comes from a client and matches it against every topic or transactional id, on its
only event loop. So matching must take time linear in the name, whatever the expression is. Apache Kafka uses RE2/J for
this; Headrace uses google-re2, which has the same syntax. Backreferences and lookarounds do not exist in RE2.

An expression matches a name only if it matches the whole name. ``re2`` is imported when the first expression is
compiled, because most brokers never see one and the import takes 5 ms.
"""

from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Any

from headrace.protocol.errors import InvalidRegularExpression

#: A longer expression is rejected before RE2 sees it: compiling takes up to 2 s per million characters.
_MAX_CHARACTERS = 10_000
#: RE2 rejects an expression whose program needs more memory than this, and keeps its cache of states below it.
_MAX_MEMORY_BYTES = 4 << 20


class Pattern:
    """A compiled regular expression."""

    __slots__ = ("_fullmatch",)

    def __init__(self, text: str) -> None:
        """
        :raises InvalidRegularExpression: if the expression is too long, or RE2 does not accept it.
        """
        if len(text) > _MAX_CHARACTERS:
            raise InvalidRegularExpression(f"it has {len(text)} characters, more than {_MAX_CHARACTERS}")
        re2, options = _library()
        try:
            self._fullmatch = re2.compile(text, options).fullmatch
        except re2.error as error:
            detail = error.args[0] if error.args else "not accepted by RE2"
            reason = detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
            raise InvalidRegularExpression(reason) from None

    def matches(self, name: str) -> bool:
        """Tells whether the expression matches the whole of the name."""
        return self._fullmatch(name) is not None

    def among(self, names: Iterable[str]) -> frozenset[str]:
        """The names that the expression matches."""
        fullmatch = self._fullmatch
        return frozenset(name for name in names if fullmatch(name) is not None)


@lru_cache(maxsize=64)
def compiled_pattern(text: str) -> Pattern:
    """Compiles an expression, or returns the one that was compiled from the same text before.

    :raises InvalidRegularExpression: if the expression is too long, or RE2 does not accept it.
    """
    return Pattern(text)


@cache
def _library() -> tuple[Any, Any]:
    import re2  # type: ignore[import-untyped]

    options = re2.Options()
    options.max_mem = _MAX_MEMORY_BYTES
    options.never_capture = True  # only whether an expression matches is asked, and captures cost memory per group
    options.log_errors = False
    return re2, options
