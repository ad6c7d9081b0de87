"""Many znodes are read in groups."""

import asyncio

import pytest

from headrace.broker.tree.reads import AT_ONCE, read_each


async def test_all_are_read_in_order_and_only_some_at_the_same_time():
    running, most = 0, 0

    async def read(number):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return number * 2

    numbers = range(3 * AT_ONCE + 1)
    assert [pair async for pair in read_each(read, numbers)] == [(number, number * 2) for number in numbers]
    assert most == AT_ONCE


async def test_a_read_that_fails_ends_the_reading():
    async def read(number):
        if number == AT_ONCE + 1:
            raise OSError
        return number

    reading = read_each(read, range(3 * AT_ONCE))
    assert [(await anext(reading))[0] for _ in range(AT_ONCE)] == list(range(AT_ONCE))
    with pytest.raises(OSError):
        await anext(reading)
