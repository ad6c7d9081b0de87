"""AnswerMemory limits the memory of large answers, and closes connections above the limit."""

import pytest

from headrace.broker.network.answer_memory import (
    ALL_ANSWERS_BYTES,
    LARGE_ANSWER_BYTES,
    MAX_ANSWER_BYTES,
    PATIENCE_MS,
    AnswerMemory,
    AnswerTooLarge,
)
from headrace.testing import ManualClock


class Receiver:
    def __init__(self):
        self.answer_memory = None
        self.is_closed = False
        self.reasons = []

    def abort(self, reason):
        self.is_closed = True
        self.reasons.append(reason)
        if self.answer_memory is not None:
            self.answer_memory.release(self)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def memory(clock):
    return AnswerMemory(clock.monotonic_ms)


def full(memory):
    """Receivers of large answers that together have exactly as many bytes as allowed."""
    receivers = [Receiver() for _ in range(ALL_ANSWERS_BYTES // MAX_ANSWER_BYTES)]
    for receiver in receivers:
        memory.send(receiver, MAX_ANSWER_BYTES)
    assert memory.total_bytes == ALL_ANSWERS_BYTES
    return receivers


def test_an_answer_has_a_limit(memory):
    receiver = Receiver()
    memory.add(receiver, MAX_ANSWER_BYTES)
    with pytest.raises(AnswerTooLarge, match=str(MAX_ANSWER_BYTES)):
        memory.add(receiver, 1)
    with pytest.raises(AnswerTooLarge, match=str(MAX_ANSWER_BYTES)):
        memory.send(Receiver(), MAX_ANSWER_BYTES + 1)


def test_the_parts_of_an_answer_count_until_the_answer_is_sent(memory):
    receiver = Receiver()
    memory.add(receiver, 100)
    memory.add(receiver, 50)
    memory.add(receiver, -50)
    assert memory.total_bytes == 100
    memory.send(receiver, 120)
    assert (memory.total_bytes, receiver.answer_memory) == (120, memory)
    memory.release(receiver)
    assert (memory.total_bytes, receiver.answer_memory) == (0, None)


def test_nothing_is_counted_for_a_closed_connection(memory):
    receiver = Receiver()
    receiver.is_closed = True
    memory.add(receiver, 2 * MAX_ANSWER_BYTES)
    assert memory.total_bytes == 0


def test_clients_that_are_still_reading_keep_their_connections(memory, clock):
    readers = full(memory)
    clock.advance(PATIENCE_MS - 1)
    with pytest.raises(AnswerTooLarge, match="not yet sent"):
        memory.add(Receiver(), LARGE_ANSWER_BYTES + 1)
    assert not any(reader.is_closed for reader in readers)


def test_small_answers_are_never_refused(memory):
    full(memory)
    memory.add(Receiver(), LARGE_ANSWER_BYTES)


def test_the_oldest_client_that_does_not_read_is_closed(memory, clock):
    first, second, *_ = full(memory)
    clock.advance(PATIENCE_MS)
    memory.add(Receiver(), MAX_ANSWER_BYTES)
    assert (first.is_closed, second.is_closed) == (True, False)
    assert str(MAX_ANSWER_BYTES) in first.reasons[0]
    assert memory.total_bytes == ALL_ANSWERS_BYTES
