"""The partitions of records without a key."""

from collections import Counter
from random import Random

from headrace.client.partitioners.strategies import Adaptive, LoadTable, RoundRobin, UniformSticky
from headrace.client.producer.slow_leaders import SlowLeaders


def fixed(*numbers):
    left = list(numbers)

    def draw(below):
        number = left.pop(0)
        assert 0 <= number < below
        return number

    return draw


def test_round_robin_takes_turns_among_those_with_a_leader():
    robin = RoundRobin()
    assert [robin.partition("t", 3, [0, 2]) for _ in range(4)] == [0, 2, 0, 2]
    assert [robin.partition("u", 3, []) for _ in range(4)] == [0, 1, 2, 0]


def test_only_uniform_sticky_chooses_again_for_a_new_batch():
    assert not RoundRobin().on_batch_done("t", 0, 3, [0, 1, 2])
    assert not Adaptive(100).on_batch_done("t", 0, 3, [0, 1, 2])
    assert UniformSticky().on_batch_done("t", 0, 3, [0, 1, 2])


def test_uniform_sticky_stays_until_a_batch_is_done_and_then_takes_another():
    sticky = UniformSticky(fixed(1, 0, 1))
    assert [sticky.partition("t", 3, [0, 1, 2]) for _ in range(3)] == [1, 1, 1]
    sticky.on_batch_done("t", 1, 3, [0, 1, 2])
    assert sticky.partition("t", 3, [0, 1, 2]) == 0
    sticky.on_batch_done("t", 1, 3, [0, 1, 2])
    assert sticky.partition("t", 3, [0, 1, 2]) == 0
    sticky.on_batch_done("t", 0, 3, [0, 1, 2])
    assert sticky.partition("t", 3, [0, 1, 2]) == 2


def test_uniform_sticky_has_no_other_where_there_is_one():
    sticky = UniformSticky(fixed(0))
    assert sticky.partition("t", 1, [0]) == 0
    sticky.on_batch_done("t", 0, 1, [0])
    assert sticky.partition("t", 1, [0]) == 0


def test_queues_0_3_1_give_the_table_4_5_8():
    table = LoadTable.of_queues([0, 1, 2], [0, 3, 1])
    assert table is not None
    assert table.frequencies == (4, 5, 8)
    assert [table.pick(fixed(number)) for number in range(8)] == [0, 0, 0, 0, 1, 2, 2, 2]


def test_no_partitions_give_no_table():
    assert LoadTable.of_queues([], []) is None


def test_adaptive_stays_for_batch_size_bytes_and_to_the_end_of_the_batch():
    adaptive = Adaptive(100, fixed(2, 0))
    assert adaptive.partition("t", 3, [0, 1, 2]) == 2
    adaptive.on_appended("t", 99, is_batch_done=True)
    assert adaptive.partition("t", 3, [0, 1, 2]) == 2
    adaptive.on_appended("t", 1, is_batch_done=False)
    assert adaptive.partition("t", 3, [0, 1, 2]) == 2
    adaptive.on_appended("t", 1, is_batch_done=True)
    assert adaptive.partition("t", 3, [0, 1, 2]) == 0


def test_adaptive_moves_on_at_twice_batch_size_whatever_the_batch():
    adaptive = Adaptive(100, fixed(2, 0))
    assert adaptive.partition("t", 3, [0, 1, 2]) == 2
    adaptive.on_appended("t", 200, is_batch_done=False)
    assert adaptive.partition("t", 3, [0, 1, 2]) == 0


def test_adaptive_draws_by_the_table():
    draws = Random(1)
    adaptive = Adaptive(1, draws.randrange)
    adaptive.partition("t", 3, [0, 1, 2])
    adaptive.on_load("t", LoadTable.of_queues([0, 1, 2], [0, 3, 1]))
    seen = Counter()
    for _ in range(8000):
        adaptive.on_appended("t", 2, is_batch_done=True)
        seen[adaptive.partition("t", 3, [0, 1, 2])] += 1
    assert abs(seen[0] - 4000) < 300
    assert abs(seen[1] - 1000) < 200
    assert abs(seen[2] - 3000) < 300


def test_adaptive_turned_off_draws_evenly():
    adaptive = Adaptive(1, fixed(0, 1), is_adaptive=False)
    adaptive.partition("t", 2, [0, 1])
    adaptive.on_load("t", LoadTable.of_queues([0], [0]))
    adaptive.on_appended("t", 2, is_batch_done=True)
    assert adaptive.partition("t", 2, [0, 1]) == 1


def test_a_leader_that_takes_nothing_for_the_availability_timeout_is_slow_until_it_does():
    leaders = SlowLeaders(100)
    leaders.ready(1, 0, is_drained=True)
    leaders.ready(1, 100, is_drained=False)
    assert not leaders.is_slow(1)
    leaders.ready(1, 101, is_drained=False)
    assert leaders.is_slow(1)
    assert not leaders.is_slow(2)
    leaders.ready(1, 102, is_drained=True)
    assert not leaders.is_slow(1)


def test_no_availability_timeout_means_nobody_is_slow():
    leaders = SlowLeaders(0)
    leaders.ready(1, 0, is_drained=False)
    leaders.ready(1, 10_000, is_drained=False)
    assert not leaders.is_slow(1)
