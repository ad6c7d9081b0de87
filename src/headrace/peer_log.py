"""Log lines about peers: whatever a peer sends, a line stays one line, and the number of lines is bounded.

A peer chooses many texts that are worth a log line: names of users, groups and clients, reasons, subjects of
certificates. With a line feed inside, such a text would look like a line of its own. So :func:`one_line` quotes every
text of a peer that a line contains.

A peer also chooses how often it fails: a thousand wrong passwords per second must not fill the disk, or hide other
lines. :class:`PeerLog` writes a line at once if it is new. It counts lines that differ only in the peer's port, and
writes the count with the first line after the period. So each period has at most ``MAX_LINES`` lines, as many counts,
and one line that counts everything else. A count without a later line is not written.
"""

from __future__ import annotations

from collections.abc import Callable
from logging import INFO, Logger
from threading import Lock

#: Longer texts of peers are cut.
MAX_CHARACTERS = 500
PERIOD_MS = 10_000
#: The number of different lines per period.
MAX_LINES = 100


def one_line(text: object, max_characters: int = MAX_CHARACTERS) -> str:
    """Returns a peer's text for a log line: control characters are escaped, and a long text is cut."""
    whole = str(text)
    shown = whole[:max_characters]
    if not shown.isprintable():
        shown = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in shown)
    return shown if len(whole) <= max_characters else f"{shown}... ({len(whole)} characters)"


class PeerLog:
    """Any thread may call it."""

    def __init__(self, logger: Logger, now_ms: Callable[[], int], *, level: int = INFO) -> None:
        """
        :param now_ms: a monotonic time.
        """
        self._logger = logger
        self._now_ms = now_ms
        self._level = level
        self._lock = Lock()
        self._began_ms: int | None = None
        #: How often each line was not written because it is a repetition.
        self._repeated: dict[tuple[str, str, str], int] = {}
        self._left_out = 0

    def write(self, what: str, host: str, reason: object, *, peer: str = "") -> None:
        """Logs ``WHAT of PEER: REASON``, unless the period had that line already.

        :param peer: host and port, if the port is worth knowing. It does not make lines different.
        """
        if not self._logger.isEnabledFor(self._level):
            return  # the level may change: a line that was not written is not a repetition later
        line = (what, host, one_line(reason))
        with self._lock:
            now_ms = self._now_ms()
            if self._began_ms is None or now_ms - self._began_ms >= PERIOD_MS:
                self._write_counts()
                self._began_ms = now_ms
            if line in self._repeated:
                self._repeated[line] += 1
                return
            if len(self._repeated) >= MAX_LINES:
                self._left_out += 1
                return
            self._repeated[line] = 0
        self._logger.log(self._level, "%s of %s: %s", what, peer or host, line[2])

    def _write_counts(self) -> None:
        for (what, host, reason), count in self._repeated.items():
            if count:
                self._logger.log(
                    self._level, "%s of %s: %s: %d more times in %d s", what, host, reason, count, PERIOD_MS // 1000
                )
        if self._left_out:
            self._logger.log(
                self._level, "%d more lines about peers were left out in %d s", self._left_out, PERIOD_MS // 1000
            )
        self._repeated.clear()
        self._left_out = 0
