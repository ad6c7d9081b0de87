"""Log lines about peers are one line each, and there are not too many of them."""

import logging

import pytest

from headrace.peer_log import MAX_CHARACTERS, MAX_LINES, PERIOD_MS, PeerLog, one_line
from headrace.testing import ManualClock

WHAT = "failed login"


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def log(clock, caplog):
    caplog.set_level(logging.INFO)
    return PeerLog(logging.getLogger("headrace.test"), clock.monotonic_ms)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("alice", "alice"),
        ("größe 1, a b", "größe 1, a b"),
        ("a\nINFO forged", r"a\nINFO forged"),
        ("a\r\n\x1b[2Jb", r"a\r\n\x1b[2Jb"),
        ("a\N{LINE SEPARATOR}b\N{RIGHT-TO-LEFT OVERRIDE}c", r"a\u2028b\u202ec"),
        ("\ud800", r"\ud800"),
        (ValueError("a\0b"), r"a\x00b"),
        (None, "None"),
    ],
)
def test_a_text_of_a_peer_stays_one_line(text, shown):
    assert one_line(text) == shown
    assert len(one_line(text).splitlines()) == 1


def test_a_long_text_is_cut():
    assert one_line("x" * MAX_CHARACTERS) == "x" * MAX_CHARACTERS
    assert one_line("x" * 70_000) == f"{'x' * MAX_CHARACTERS}... (70000 characters)"


def test_repetitions_are_counted_and_the_count_comes_with_the_first_line_after_the_period(log, clock, caplog):
    for port in range(1_000):
        log.write(WHAT, "10.0.0.1", "wrong password", peer=f"10.0.0.1:{port}")
    assert caplog.messages == ["failed login of 10.0.0.1:0: wrong password"]
    clock.advance(PERIOD_MS - 1)
    log.write(WHAT, "10.0.0.2", "wrong password")
    log.write(WHAT, "10.0.0.1", "wrong password")
    assert caplog.messages[1:] == ["failed login of 10.0.0.2: wrong password"]
    clock.advance(1)
    caplog.clear()
    log.write(WHAT, "10.0.0.2", "wrong password")
    assert caplog.messages == [
        "failed login of 10.0.0.1: wrong password: 1000 more times in 10 s",
        "failed login of 10.0.0.2: wrong password",
    ]


def test_many_different_lines_are_left_out(log, clock, caplog):
    for number in range(5_000):
        log.write(WHAT, f"fd00::{number:x}", "wrong\npassword")
    assert len(caplog.messages) == MAX_LINES
    assert caplog.messages[-1] == r"failed login of fd00::63: wrong\npassword"
    clock.advance(PERIOD_MS)
    caplog.clear()
    log.write(WHAT, "10.0.0.1", "wrong password")
    assert caplog.messages == [
        f"{5_000 - MAX_LINES} more lines about peers were left out in 10 s",
        "failed login of 10.0.0.1: wrong password",
    ]
