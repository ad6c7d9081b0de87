"""Logs the failures of versions, one line each. Tracebacks are logged at the debug level only."""

from __future__ import annotations

from logging import getLogger

from headrace.pipeline.serving.catalog import Version
from headrace.pipeline.version.failures import summary_of

logger = getLogger("headrace.views")


def quarantine_text(view: str, reason: str) -> str:
    """Why a version is quarantined, and what to do.

    :param reason: why the Java process ended, or what did not get memory.
    """
    return (
        f"it was working twice when Spark ran out of memory or its Java process died ({reason}); it is set aside so "
        "that other views can go on; give Spark more memory ([spark] memory in headrace.toml) or make the query "
        f"smaller, then run 'headrace views switch {view} --restart'"
    )


class FailureLog:
    def __init__(self) -> None:
        self._warnings: dict[str, str] = {}

    def failed(self, version: Version, text: str, wait_ms: int | None, error: BaseException | None = None) -> None:
        if wait_ms:
            logger.warning("%s: failed, trying again in %.1f s: %s", version.label, wait_ms / 1000, text)
        else:
            how = f"correct it and run 'headrace views apply', or 'headrace views switch {version.view} --restart'"
            logger.error("%s: failed: %s%s", version.label, text, "" if "--restart" in text else f"; {how}")
        if error is not None:
            logger.debug("%s: the whole error", version.label, exc_info=error)

    def warn_once(self, version: Version, error: Exception) -> None:
        """Logs an error beside the version's work, such as one in stopping; but not again in every round."""
        text = summary_of(error)
        if self._warnings.get(version.label) != text:
            self._warnings[version.label] = text
            logger.warning("%s: %s", version.label, text)

    def clear_warning(self, version: Version) -> None:
        self._warnings.pop(version.label, None)
