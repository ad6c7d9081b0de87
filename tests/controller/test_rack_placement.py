"""Compares the placement by racks with the placement of Apache Kafka for the same input."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.controller.placement import (
    PlacementOptions,
    alternate_racks,
    place_replicas,
    start_for_more,
)

#: As Kafka 3.x placed nine partitions: each broker's rack (- is none), replicas, where to begin: the result.
KAFKA = """
--- 1 0: 0 1 2 0 1 2 0 1 2
--- 2 0: 01 12 20 02 10 21 01 12 20
--- 2 2: 20 01 12 21 02 10 20 01 12
--- 3 0: 012 120 201 021 102 210 012 120 201
--- 3 2: 201 012 120 210 021 102 201 012 120
----- 1 0: 0 1 2 3 4 0 1 2 3
----- 2 0: 01 12 23 34 40 02 13 24 30
----- 2 2: 20 31 42 03 14 21 32 43 04
----- 3 0: 012 123 234 340 401 023 134 240 301
----- 3 2: 201 312 423 034 140 213 324 430 041
----- 4 0: 0123 1234 2340 3401 4012 0234 1340 2401 3012
----- 4 2: 2013 3124 4230 0341 1402 2134 3240 4301 0412
133221 1 0: 0 3 1 5 4 2 0 3 1
133221 2 0: 03 31 15 54 42 20 04 32 10
133221 2 2: 14 52 40 23 01 35 13 51 45
133221 3 0: 031 315 154 542 420 203 042 320 103
133221 3 2: 140 523 401 235 014 352 135 514 452
133221 4 0: 0315 3154 1542 5420 4203 2031 0423 3201 1035
133221 4 2: 1403 5231 4015 2354 0142 3520 1354 5142 4520
aabb 1 0: 0 2 1 3 0 2 1 3 0
aabb 2 0: 02 21 13 30 03 20 12 31 03
aabb 2 2: 12 31 03 20 13 30 02 21 12
aabb 3 0: 021 213 130 302 032 201 123 310 032
aabb 3 2: 123 310 032 201 130 302 021 213 123
aabb 4 0: 0213 2130 1302 3021 0321 2013 1230 3102 0321
aabb 4 2: 1230 3102 0321 2013 1302 3021 0213 2130 1230
abc 1 0: 0 1 2 0 1 2 0 1 2
abc 2 0: 01 12 20 02 10 21 01 12 20
abc 2 2: 20 01 12 21 02 10 20 01 12
abc 3 0: 012 120 201 021 102 210 012 120 201
abc 3 2: 201 012 120 210 021 102 201 012 120
aaabc 1 0: 0 3 4 1 2 0 3 4 1
aaabc 2 0: 03 34 41 13 23 03 30 43 14
aaabc 2 2: 40 13 24 03 32 42 13 23 04
aaabc 3 0: 034 341 413 134 234 034 304 431 143
aaabc 3 2: 403 134 243 034 324 423 134 234 043
aaabc 4 0: 0341 3412 4132 1342 2341 0341 3041 4312 1432
aaabc 4 2: 4031 1342 2431 0341 3241 4231 1342 2341 0431
baacccb 1 0: 1 0 3 2 6 4 5 1 0
baacccb 2 0: 10 03 32 26 64 41 51 16 04
baacccb 2 2: 32 26 64 41 51 10 03 31 20
baacccb 3 0: 103 032 326 264 641 410 510 164 041
baacccb 3 2: 326 264 641 410 510 103 032 310 203
baacccb 4 0: 1032 0326 3264 2645 6410 4103 5103 1645 0413
baacccb 4 2: 3264 2645 6410 4103 5103 1032 0326 3102 2036
"""


@pytest.mark.parametrize("line", KAFKA.strip().splitlines())
def test_the_same_as_kafka(line):
    question, answer = line.split(": ")
    racks, factor, start = question.split()
    placed = place_replicas(
        9,
        int(factor),
        PlacementOptions(
            range(len(racks)),
            {broker: None if rack == "-" else rack for broker, rack in enumerate(racks)},
            start_index=int(start),
            start_shift=int(start),
        ),
    )
    assert " ".join("".join(map(str, replicas)) for replicas in placed) == answer


def test_racks_alternate():
    assert alternate_racks({0: "r1", 1: "r3", 2: "r3", 3: "r2", 4: "r2", 5: "r1"}) == [0, 3, 1, 5, 4, 2]
    assert alternate_racks({0: "b", 1: "a", 2: "a", 3: "a"}) == [1, 0, 2, 3]
    assert alternate_racks({}) == []


def test_added_partitions_go_on_where_the_others_ended():
    racks = {0: "a", 1: "a", 2: "b", 3: "c"}
    options = PlacementOptions(list(racks), racks, start_index=2, start_shift=1)
    together = place_replicas(11, 3, options)
    assert place_replicas(4, 3, options) == together[:4]
    assert place_replicas(7, 3, options, first_partition=4) == together[4:]


@pytest.mark.parametrize(("first", "expected"), [(1, 0), (2, 1), (4, 2), (5, 2), (6, 0)])
def test_where_added_partitions_begin(first, expected):
    assert start_for_more(first, [5, 1, 2]) == expected


def test_some_brokers_without_a_rack():
    racks = {0: "a", 1: None, 2: "b"}
    plain = place_replicas(6, 2, PlacementOptions([0, 1, 2]))
    assert place_replicas(6, 2, PlacementOptions([0, 1, 2], racks)) == plain
    assert place_replicas(6, 2, PlacementOptions([0, 2], racks)) == place_replicas(
        6, 2, PlacementOptions([0, 2], {0: "a", 2: "b"})
    )


@given(
    st.dictionaries(st.integers(0, 30), st.sampled_from("abcd"), min_size=1, max_size=9),
    st.integers(1, 30),
    st.integers(1, 9),
    st.integers(0, 20),
    st.integers(0, 20),
)
def test_replicas_are_spread(racks, count, factor, start_index, start_shift):
    factor = min(factor, len(racks))
    placed = place_replicas(count, factor, PlacementOptions(sorted(racks), racks, start_index, start_shift))
    rack_count = len(set(racks.values()))
    assert len(placed) == count
    for replicas in placed:
        assert len(set(replicas)) == factor
        used = {racks[broker] for broker in replicas}
        assert len(used) == min(factor, rack_count)
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders[broker] for broker in racks) <= 1


@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4), st.integers(0, 9), st.integers(0, 9))
def test_even_racks_with_a_replica_each_give_every_broker_as_many(rack_count, size, rounds, start_index, start_shift):
    racks = {broker: str(broker % rack_count) for broker in range(rack_count * size)}
    placed = place_replicas(
        rounds * len(racks), rack_count, PlacementOptions(list(racks), racks, start_index, start_shift)
    )
    held = Counter(broker for replicas in placed for broker in replicas)
    assert set(held.values()) == {rounds * rack_count}
