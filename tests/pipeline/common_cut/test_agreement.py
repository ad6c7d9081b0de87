"""The cut of a round: what the followers have seen of the log, and up to where each of them reads."""

from __future__ import annotations

import re

from headrace.pipeline.common_cut.agreement import LogPosition, Place, agree


def position(topics: str, read: dict, ends: dict, *, joins: bool = False) -> LogPosition:
    return LogPosition(read, ends, lambda topic: bool(re.fullmatch(topics, topic)), not joins)


def test_all_read_up_to_the_largest_end_that_one_of_them_has_seen():
    read = {"a": {0: 5, 1: 7}}
    early, late = position("a", read, {"a": {0: 9, 1: 7}}), position("a", read, {"a": {0: 8, 1: 10}})
    assert agree([early, late]) == [(Place.IN, {"a": {0: 9, 1: 10}})] * 2


def test_each_reads_its_own_topics():
    first = position("a|b", {"a": {0: 1}, "b": {0: 1}}, {"a": {0: 2}, "b": {0: 2}})
    second = position("b|c", {"b": {0: 1}, "c": {0: 1}}, {"b": {0: 3}, "c": {0: 2}})
    assert agree([first, second]) == [
        (Place.IN, {"a": {0: 2}, "b": {0: 3}}), (Place.IN, {"b": {0: 3}, "c": {0: 2}}),
    ]  # fmt: skip


def test_a_partition_that_one_of_them_has_not_noticed_yet_waits_for_the_next_round():
    read = {"a": {0: 5}}
    knows, does_not = position("a", read, {"a": {0: 6, 1: 3}}), position("a", read, {"a": {0: 6}})
    assert agree([knows, does_not]) == [(Place.IN, {"a": {0: 6}})] * 2
    knows, does_not = position("a.*", {}, {"a1": {0: 6}, "a2": {0: 6}}), position("a.*", {}, {"a1": {0: 6}})
    assert agree([knows, does_not]) == [(Place.IN, {"a1": {0: 6}})] * 2, "the same for a topic of a pattern"


def test_a_round_moves_on_by_a_limited_number_of_offsets():
    ends = {"a": {0: 300, 1: 100}}
    positions = [position("a", {}, ends), position("a", {"a": {0: 0}}, ends)]
    assert agree(positions, limit=40) == [(Place.IN, {"a": {0: 30, 1: 10}})] * 2


def test_one_that_is_near_joins_at_the_cut_and_one_that_is_far_does_not():
    ends = {"a": {0: 1000}}
    inside, near, far = (position("a", {"a": {0: at}}, ends, joins=at < 990) for at in (990, 970, 800))
    assert agree([inside, near, far], limit=50) == [
        (Place.IN, {"a": {0: 1000}}), (Place.IN, {"a": {0: 1000}}), (Place.BEHIND, ends),
    ]  # fmt: skip


def test_one_that_has_read_more_waits_for_the_others():
    ends = {"a": {0: 1000}}
    inside, ahead = position("a", {"a": {0: 100}}, ends), position("a", {"a": {0: 180}}, ends, joins=True)
    assert agree([inside, ahead], limit=50) == [(Place.IN, {"a": {0: 150}}), (Place.AHEAD, {"a": {0: 180}})]
    assert agree([inside, ahead], limit=100) == [(Place.IN, {"a": {0: 200}}), (Place.IN, {"a": {0: 200}})]


def test_if_nobody_is_in_the_one_that_is_nearest_to_the_end_decides():
    ends = {"a": {0: 1000}}
    far, near = (position("a", {"a": {0: at}}, ends, joins=True) for at in (100, 990))
    assert agree([far, near], limit=50) == [(Place.BEHIND, ends), (Place.IN, ends)]


def test_one_that_did_not_reach_the_last_cut_is_not_in_any_more():
    ends = {"a": {0: 12}}
    there, short = position("a", {"a": {0: 10}}, ends), position("a", {"a": {0: 8}}, ends)
    assert agree([there, short]) == [(Place.IN, ends), (Place.BEHIND, ends)]


def test_one_that_joins_must_know_all_partitions_of_the_cut():
    knows, does_not = position("a", {}, {"a": {0: 1, 1: 1}}), position("a", {}, {"a": {0: 1}}, joins=True)
    assert agree([knows, does_not]) == [(Place.IN, {"a": {0: 1, 1: 1}}), (Place.BEHIND, {"a": {0: 1}})]
