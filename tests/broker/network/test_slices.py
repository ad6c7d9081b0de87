"""Slices of the event loop's time: who gets a turn when, and how the answers of large requests are kept."""

import asyncio
from itertools import pairwise

from headrace.broker.network.slices import SLICE_BYTES, SLICE_MS, Answers, Slices, in_groups
from headrace.protocol.api import Api
from headrace.protocol.kio import load_response_schema
from headrace.protocol.wire.encoder import nested_encoder
from headrace.protocol.wire.server_codec import server_codec
from headrace.testing import ManualClock

GROUPS = nested_encoder(load_response_schema(Api.DELETE_GROUPS, 2), "results")


def slices_on(clock):
    return Slices(asyncio.get_running_loop(), clock)


async def test_a_loop_over_items_pauses_when_its_slice_has_ended():
    clock = ManualClock()
    slices, seen = slices_on(clock), []
    asyncio.get_running_loop().call_soon(seen.append, "another client")
    async for item in slices.over(range(2 * SLICE_MS)):
        seen.append(item)
        clock.advance(1)
    assert seen == [*range(SLICE_MS), "another client", *range(SLICE_MS, 2 * SLICE_MS)]


async def test_while_the_clock_stands_still_nobody_pauses():
    slices, seen = slices_on(ManualClock()), []
    asyncio.get_running_loop().call_soon(seen.append, "another client")
    seen.extend([item async for item in slices.over(range(1_000))])
    assert seen == [*range(1_000)]


async def test_a_loop_pauses_when_it_has_stored_many_bytes():
    slices, seen = slices_on(ManualClock()), []
    asyncio.get_running_loop().call_soon(seen.append, "another client")
    async for item in slices.over(range(4), lambda _: SLICE_BYTES // 2):
        seen += [item]
    assert seen == [0, 1, "another client", 2, 3]


async def test_large_requests_take_turns_one_slice_in_each_iteration():
    clock = ManualClock()
    slices, order, iterations = slices_on(clock), [], []

    async def request(name):
        async for _ in slices.over(range(3)):
            order.append(name)
            clock.advance(SLICE_MS)

    def iteration():
        iterations.append(len(order))
        if len(order) < 9:
            asyncio.get_running_loop().call_soon(iteration)

    asyncio.get_running_loop().call_soon(iteration)
    await asyncio.gather(*(request(name) for name in "abc"))
    assert order == ["a", "b", "c"] * 3
    steps = [later - earlier for earlier, later in pairwise(iterations)]
    assert max(steps[1:]) == 1  # the first slice of each is not waited for


async def test_a_generator_is_run_to_its_value():
    clock = ManualClock()
    seen = []

    def steps():
        for number in range(3):
            seen.append(number)
            clock.advance(SLICE_MS)
            yield
        return "value"

    assert await slices_on(clock).run(steps()) == "value"
    assert seen == [0, 1, 2]


async def test_what_is_repeated():
    repeated = await slices_on(ManualClock()).repeated("abcabd", lambda letter: letter)
    assert repeated == {"a", "b"}
    assert [repeated.was_met_before(letter) for letter in "abcabd"] == [False, False, False, True, True, False]


def encoded(answers):
    out = bytearray()
    server_codec(Api.DELETE_GROUPS, 2).encode_reply(out, {"results": answers}, [])
    return bytes(out)


def test_answers_that_are_encoded_as_they_come_are_the_same_bytes():
    plain = [{"group_id": f"g{number}", "error_code": number % 3} for number in range(1_001)]
    answers = Answers(GROUPS)
    for number, answer in enumerate(plain):
        answers.add(answer, may_change=number % 300 == 7)
    assert (len(answers), answers.may_change) == (1_001, True)
    assert encoded(answers) == encoded(plain)


def test_an_answer_that_may_change_is_encoded_last():
    answers, late = Answers(GROUPS), {"group_id": "b", "error_code": 0}
    answers.add({"group_id": "a"})
    answers.add(late, may_change=True)
    answers.add(None)
    answers.add({"group_id": "c"})
    late["error_code"] = 7
    assert encoded(answers) == encoded([{"group_id": "a"}, late, {"group_id": "c"}])


def test_groups_of_items():
    assert list(in_groups(range(5), 2)) == [[0, 1], [2, 3], [4]]
    assert list(in_groups([], 2)) == []
