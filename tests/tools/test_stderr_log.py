"""The log of the commands that serve: a message is one line, whatever a peer has put into it."""

import logging
import sys

from headrace.tools.shared.stderr_log import OneLineFormatter


def format_of(message, exc_info=None):
    record = logging.LogRecord("headrace.x", logging.INFO, "file", 1, message, (), exc_info)
    return OneLineFormatter("%(levelname)s %(message)s (%(name)s)").format(record)


def test_a_message_is_one_line():
    assert format_of("cannot read a\nINFO forged\x1b[2J") == r"INFO cannot read a\nINFO forged\x1b[2J (headrace.x)"
    assert len(format_of("x" * 1_000_000)) < 21_000


def test_a_traceback_keeps_its_lines():
    try:
        raise ValueError("ours")
    except ValueError:
        text = format_of("failed", sys.exc_info())
    assert text.splitlines()[0] == "INFO failed (headrace.x)"
    assert text.splitlines()[-1] == "ValueError: ours"
