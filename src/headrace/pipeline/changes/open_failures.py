"""Holds the failures of work beside the runner that is tried again, such as publishing a view. Logs each once."""

from __future__ import annotations

from logging import getLogger

from headrace.client.errors import HeadraceError

logger = getLogger("headrace.views")

#: How long failed work waits before it is tried again.
AGAIN_S = 10.0


class OpenFailures:
    def __init__(self) -> None:
        #: By work, such as ``publishing pages``.
        self._texts: dict[str, str] = {}

    def add(self, work: str, error: Exception) -> None:
        """Notes that work has failed. Logs it, unless the last try failed in the same way."""
        text = str(error) or type(error).__name__
        if self._texts.get(work) != text:
            is_expected = isinstance(error, HeadraceError)
            logger.warning("%s failed and is tried again: %s", work, text, exc_info=None if is_expected else error)
        self._texts[work] = text

    def end(self, work: str) -> None:
        """Notes that work has succeeded."""
        if self._texts.pop(work, None) is not None:
            logger.info("%s works again", work)

    def names(self) -> list[str]:
        """The work whose last try failed."""
        return sorted(self._texts)
