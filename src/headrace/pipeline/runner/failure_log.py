"""Says in a line of the log that a version failed, and why; tracebacks are for the debug level."""

from __future__ import annotations

from logging import getLogger

from headrace.pipeline.serving.catalog import Version
from headrace.pipeline.version.failures import summary_of

logger = getLogger("headrace.views")


def set_aside_text(view: str, said: str) -> str:
    """
    :param said: how the Java process died, or what did not get memory.
    """
    return (
        f"it was at work twice when Spark ran out of memory or its Java process died ({said}), and is set aside so "
        "that other views go on; give Spark more memory ([spark] memory in headrace.toml) or make the query smaller, "
        f"then run 'headrace views switch {view} --restart'"
    )


class FailureLines:
    def __init__(self) -> None:
        self._complaints: dict[str, str] = {}

    def failed(self, version: Version, text: str, wait_ms: int | None, error: BaseException | None = None) -> None:
        if wait_ms:
            logger.warning("%s: failed, trying again in %.1f s: %s", version.who, wait_ms / 1000, text)
        else:
            how = f"mend it and run 'headrace views apply', or 'headrace views switch {version.view} --restart'"
            logger.error("%s: failed: %s%s", version.who, text, "" if "--restart" in text else f"; {how}")
        if error is not None:
            logger.debug("%s: the whole error", version.who, exc_info=error)

    def complain(self, version: Version, error: Exception) -> None:
        """Of what went wrong with a version beside its work, such as stopping; but not at every round."""
        text = summary_of(error)
        if self._complaints.get(version.who) != text:
            self._complaints[version.who] = text
            logger.warning("%s: %s", version.who, text)

    def no_complaint(self, version: Version) -> None:
        self._complaints.pop(version.who, None)
