"""The producer's memory: bounded, in order, and given back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.producer.buffer_pool import BufferPool, LargerThanPool, WaitState


def test_what_is_there_is_given_at_once():
    pool = BufferPool(100)
    assert pool.try_reserve(60)
    assert not pool.try_reserve(41)
    assert pool.try_reserve(40)
    assert pool.available_bytes == 0


def test_over_allocation_is_refused():
    pool = BufferPool(100)
    with pytest.raises(LargerThanPool, match=r"buffer\.memory is 100"):
        pool.try_reserve(101)
    with pytest.raises(LargerThanPool):
        pool.wait(101, lambda wait: None)
    assert pool.available_bytes == 100
    assert pool.waiting == 0


def test_waiters_are_served_in_order_and_a_small_one_does_not_overtake():
    pool, served = BufferPool(100), []
    assert pool.try_reserve(100)
    large = pool.wait(80, served.append)
    small = pool.wait(10, served.append)
    pool.release(20)
    assert served == []
    assert not pool.try_reserve(5)
    pool.release(60)
    assert served == [large]
    assert large.state is WaitState.GRANTED
    pool.release(20)
    assert served == [large, small]
    assert pool.available_bytes == 10


def test_a_cancelled_wait_lets_the_next_one_through():
    pool, ended = BufferPool(100), []
    assert pool.try_reserve(50)
    large, small = pool.wait(80, ended.append), pool.wait(50, ended.append)
    pool.cancel(large)
    pool.cancel(large)
    assert ended == [large, small]
    assert large.state is WaitState.CANCELLED


def test_more_given_back_than_taken_is_our_mistake():
    with pytest.raises(AssertionError):
        BufferPool(100).release(1)


@given(st.lists(st.integers(1, 100), max_size=30))
def test_all_that_wait_are_served_once_all_is_given_back(sizes):
    pool, served, held = BufferPool(100), [], []
    waits = [pool.wait(size, lambda wait: (served.append(wait), held.append(wait.size_bytes))) for size in sizes]
    while held:
        assert 0 <= pool.available_bytes == 100 - sum(held)
        pool.release(held.pop(0))
    assert served == waits
    assert pool.available_bytes == 100
