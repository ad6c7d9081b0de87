"""Plans of reassignments: files, proposals, throttles and progress."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.admin.types import LogDir, Reassignment, ReplicaSize, TopicPartitionReplica
from headrace.client.types import TopicPartition
from headrace.tools.reassign_partitions.plan import (
    Move,
    PartitionState,
    Target,
    as_text,
    brokers_of,
    current_targets,
    follower_throttles,
    leader_throttles,
    listing,
    moves,
    parse_reassignment,
    parse_topics,
    partition_states,
    propose,
    replica_states,
)
from headrace.tools.shared.commands import CommandError, UsageError

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


# -- files


def item(**fields):
    return {"partitions": [{"topic": "a", "partition": 0, **fields}]}


def test_a_file_is_read_and_written():
    targets = parse_reassignment(item(replicas=[1, 2], log_dirs=["any", "/d"]), "f")
    assert targets == {A0: Target((1, 2), ("any", "/d"))}
    assert as_text(targets) == (
        '{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[1,2],"log_dirs":["any","/d"]}]}'
    )
    assert parse_reassignment(item(replicas=[3]), "f")[A0].places == [(3, "any")]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({"partitions": []}, "list cannot be empty"),
        (item(), '"replicas"'),
        (item(replicas=[]), "replica list cannot be empty"),
        (item(replicas=["1"]), "must be a list of broker ids"),
        (item(replicas=[1, 2, 1]), "a-0 contains multiple entries for 1"),
        (item(replicas=[2**31]), "must be a list of broker ids"),
        (item(replicas=[1, 2], log_dirs=["any"]), "different from size of log dirs"),
        (item(replicas=[1], log_dirs=5), "log_dirs of a-0 are 5, but must be a list of paths"),
        (item(replicas=[1], log_dirs=None), "a list of paths"),
        (item(replicas=[1], log_dirs=[5]), "a list of paths"),
        ({"version": 3, "partitions": []}, "Not supported version field value 3"),
    ],
)
def test_a_file_that_makes_no_sense(content, complaint):
    with pytest.raises(UsageError, match=complaint):
        parse_reassignment(content, "f")


def test_topics_to_move():
    assert parse_topics({"version": 1, "topics": [{"topic": "a"}, {"topic": "b"}]}, "f") == ["a", "b"]
    for content in ([], {}, {"topics": ["a"]}, {"topics": [{"topic": "a"}] * 2}, {"version": 2, "topics": []}):
        with pytest.raises(UsageError):
            parse_topics(content, "f")


def test_how_partitions_lie_now():
    dirs = {
        1: {
            "/x": LogDir("/x", None, {A0: ReplicaSize(1, 0, False)}),
            "/y": LogDir("/y", None, {A0: ReplicaSize(1, 0, True)}),
        }
    }
    assert current_targets({A0: (1, 2)}, dirs) == {A0: Target((1, 2), ("/x", "any"))}


# -- proposals


def partitions(count, factor):
    return {TopicPartition("a", index): tuple(range(factor)) for index in range(count)}


def test_replicas_are_spread_evenly():
    proposed = propose(partitions(12, 3), dict.fromkeys([4, 5, 6, 7]))
    assert set(Counter(target.replicas[0] for target in proposed.values()).values()) == {3}
    assert set(Counter(broker for target in proposed.values() for broker in target.replicas).values()) == {9}
    assert all(len(set(target.replicas)) == 3 for target in proposed.values())
    followers = {target.replicas[1] for target in proposed.values() if target.replicas[0] == 4}
    assert followers == {5, 6, 7}, "what one broker leads is followed on all others"


def test_replicas_lie_in_different_racks():
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    for target in propose(partitions(12, 3), racks).values():
        assert {racks[broker] for broker in target.replicas} == {"a", "b", "c"}
    for target in propose(partitions(6, 4), racks).values():
        assert len({racks[broker] for broker in target.replicas}) == 3
        assert len(set(target.replicas)) == 4


def test_more_replicas_than_brokers():
    with pytest.raises(CommandError, match="Replication factor: 2 larger than available brokers: 1"):
        propose(partitions(1, 2), {1: None})


def test_one_broker_takes_all():
    assert {target.replicas for target in propose(partitions(3, 1), {9: None}).values()} == {(9,)}


# -- throttles

ONGOING = {A1: Reassignment((1, 2, 3), (3,), (1,))}


def test_what_is_copied_is_throttled_where_it_comes_from_and_where_it_goes():
    found = moves({A0: Target((2, 3)), B0: Target((1, 2))}, {A0: (1, 2), B0: (1, 2)}, ONGOING)
    assert found == {A0: Move((1, 2), (3,)), A1: Move((1, 2), (3,)), B0: Move((1, 2), ())}
    assert leader_throttles(found) == {"a": "0:1,0:2,1:1,1:2", "b": "0:1,0:2"}
    assert follower_throttles(found) == {"a": "0:3,1:3"}
    assert brokers_of(found) == [1, 2, 3]


def test_a_new_plan_replaces_the_one_under_way():
    assert moves({A1: Target((1, 4))}, {A1: (1, 2, 3)}, ONGOING) == {A1: Move((1, 2), (4,))}


# -- progress


def test_partitions_are_under_way_done_or_neither():
    targets = {A0: Target((1,)), A1: Target((2, 3)), B0: Target((7,))}
    states = partition_states(targets, {A0: (1,), A1: (1, 2, 3), B0: (1,)}, ONGOING)
    assert [str(state) for state in states] == [
        "Reassignment of partition a-0 is completed.",
        "Reassignment of partition a-1 is still in progress.",
        "There is no active reassignment of partition b-0, but replica set is 1 rather than 7.",
    ]
    assert states[1] == PartitionState(A1, (1, 2, 3), (2, 3), True)


@pytest.mark.parametrize(
    ("current", "future", "line"),
    [
        ("/new", None, "Reassignment of replica a-0-1 completed successfully."),
        ("/old", "/new", "Reassignment of replica a-0-1 is still in progress."),
        ("/old", "/else", "Partition a-0 on broker 1 is being moved to log dir /else instead of /new."),
        ("/old", None, "Partition a-0 on broker 1 is not being moved from log dir /old to /new."),
        (None, None, "Partition a-0 cannot be found in any live log directory on broker 1."),
    ],
)
def test_log_dirs(current, future, line):
    dirs = {}
    if current:
        dirs[current] = LogDir(current, None, {A0: ReplicaSize(1, 0, False)})
    if future:
        dirs[future] = LogDir(future, None, {A0: ReplicaSize(1, 0, True)})
    (state,) = replica_states({A0: Target((1, 2), ("/new", "any"))}, {1: dirs})
    assert str(state) == line
    assert state.replica == TopicPartitionReplica("a", 0, 1)
    assert state.is_ongoing is (future is not None)


def test_what_is_under_way_is_listed():
    assert list(listing(ONGOING)) == ["a-1: replicas: 1,2,3. adding: 3. removing: 1."]


@given(
    counts=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    racks=st.lists(st.sampled_from(["x", "y", "z"]), min_size=1, max_size=8),
    factor=st.integers(1, 4),
    with_racks=st.booleans(),
)
def test_any_proposal_is_sound(counts, racks, factor, with_racks):
    factor = min(factor, len(racks))
    brokers = {number: rack if with_racks else None for number, rack in enumerate(racks)}
    now = {
        TopicPartition(f"t{topic}", index): (0,) * factor
        for topic, count in enumerate(counts)
        for index in range(count)
    }
    proposed = propose(now, brokers)
    assert proposed.keys() == now.keys()
    leaders = Counter(target.replicas[0] for target in proposed.values())
    assert max(leaders.values()) - min(leaders[number] for number in brokers) <= 1
    for target in proposed.values():
        assert len(set(target.replicas)) == factor
        assert len({brokers[number] for number in target.replicas}) == min(factor, len(set(brokers.values())))
