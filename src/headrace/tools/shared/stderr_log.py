"""The log of the commands that serve: on stderr, one line per message.

Lines about peers quote the peers' texts (``peer_log.py``). The formatter does the same again for the whole message,
because a text of a peer may be in an exception of any library. Tracebacks keep their lines.
"""

from __future__ import annotations

import logging
import sys

from headrace.peer_log import one_line

_MAX_CHARACTERS = 20_000


class OneLineFormatter(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  its name in the base class
        return one_line(super().formatMessage(record), _MAX_CHARACTERS)


def log_to_stderr(level: str, *, prefix: str = "", suffix: str = "") -> None:
    """
    :param prefix: the text before each message; ``suffix``: the text after it.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLineFormatter(f"%(asctime)s %(levelname)s {prefix}%(message)s{suffix}"))
    logging.basicConfig(level=level, handlers=[handler])
