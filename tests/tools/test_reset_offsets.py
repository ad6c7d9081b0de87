"""The seven strategies of a reset, and files of offsets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.types import TopicPartition
from headrace.tools.consumer_groups.reset_strategies import (
    Facts,
    Strategy,
    csv_lines,
    parse_csv,
    parse_datetime_ms,
    plan,
    time_before_ms,
)
from headrace.tools.shared.commands import CommandError, UsageError

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
FACTS = Facts(
    earliest={A0: 10, A1: 0}, latest={A0: 20, A1: 5}, committed={A0: 15}, at_time={A0: 12}
)  # fmt: skip


@pytest.mark.parametrize(
    ("strategy", "first", "second"),
    [
        (Strategy("to_earliest"), 10, 0),
        (Strategy("to_latest"), 20, 5),
        (Strategy("to_current"), 15, 5),  # nothing committed: the end
        (Strategy("to_offset", 12), 12, 5),  # past the end: the end
        (Strategy("to_offset", 3), 10, 3),  # before the start: the start
        (Strategy("at_time", 1000), 12, 5),  # no record so young: the end
    ],
)
def test_strategies(strategy, first, second):
    assert plan(strategy, [A1, A0], FACTS).offsets == {A0: first, A1: second}


@pytest.mark.parametrize(("distance", "offset"), [(-2, 13), (3, 18), (-100, 10), (100, 20), (0, 15)])
def test_shifting_stays_within_the_partition(distance, offset):
    assert plan(Strategy("shift_by", distance), [A0], FACTS).offsets == {A0: offset}


def test_an_offset_that_a_partition_does_not_have_is_told():
    assert plan(Strategy("to_offset", 7), [A0, A1], FACTS).warnings == [
        "New offset (7) is lower than earliest offset for topic partition a-0. Value will be set to 10",
        "New offset (7) is higher than latest offset for topic partition a-1. Value will be set to 5",
    ]
    assert plan(Strategy("to_offset", 15), [A0], FACTS).warnings == []


def test_what_was_never_committed_cannot_be_shifted():
    with pytest.raises(CommandError, match="partition a-1 since there is no current committed offset"):
        plan(Strategy("shift_by", 1), [A0, A1], FACTS)


def test_a_file_says_where():
    assert plan(Strategy("from_file"), [A0, A1], FACTS, {A0: 11, A1: 99}).offsets == {A0: 11, A1: 5}


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("1970-01-01T00:00:01.500", 1500),
        ("1970-01-01T00:00:01", 1000),
        ("1970-01-01T00:00:01.500Z", 1500),
        ("1970-01-01T01:00:00.000+01:00", 0),
        ("2026-11-16T01:52:00.000-0500", 1794811920000),
    ],
)
def test_times_are_utc_unless_they_say_otherwise(text, at_ms):
    assert parse_datetime_ms(text) == at_ms


@pytest.mark.parametrize("text", ["", "yesterday", "2026-11-16", "2026-13-16T00:00:00.000"])
def test_times_that_are_none(text):
    with pytest.raises(UsageError, match="Error parsing timestamp"):
        parse_datetime_ms(text)


def test_durations_go_back_from_now():
    assert time_before_ms("PT1H30M", 10_000_000) == 4_600_000
    assert time_before_ms("P1D", 1) == 0
    with pytest.raises(UsageError, match="--by-duration"):
        time_before_ms("an hour", 0)


def test_a_file_for_one_group_and_for_several():
    assert parse_csv("a,0,5\n\na, 1, 6\n", "f", ["g"]) == {"g": {A0: 5, A1: 6}}
    assert parse_csv("g,a,0,5\nh,a,0,6\n", "f", ["g", "h"]) == {"g": {A0: 5}, "h": {A0: 6}}


@pytest.mark.parametrize(("text", "groups"), [("a,0", ["g"]), ("a,x,1", ["g"]), ("a,0,5", ["g", "h"]), ("a,0,", ["g"])])
def test_a_line_that_makes_no_sense_is_named(text, groups):
    with pytest.raises(UsageError, match="f, line 2: "):
        parse_csv(f"g,a,0,1\n{text}\n", "f", groups)


@pytest.mark.parametrize("with_group", [False, True])
def test_what_is_exported_can_be_read(with_group):
    plans = {"g,1" if with_group else "g": {A0: 5, A1: 6}}
    text = "\n".join(csv_lines(plans, with_group=with_group))
    assert parse_csv(text, "f", plans) == plans


@given(
    kind=st.sampled_from(["to_earliest", "to_latest", "to_current", "to_offset", "shift_by", "at_time"]),
    number=st.integers(-(2**63), 2**63),
    earliest=st.integers(0, 100),
    size=st.integers(0, 100),
    committed=st.integers(0, 300),
    at_time=st.none() | st.integers(0, 100),
)
def test_no_strategy_leaves_the_partition(kind, number, earliest, size, committed, at_time):
    facts = Facts({A0: earliest}, {A0: earliest + size}, {A0: committed}, {} if at_time is None else {A0: at_time})
    assert earliest <= plan(Strategy(kind, number), [A0], facts).offsets[A0] <= earliest + size
