"""Network threads without threads: their turns are taken by hand, and the channels only note who uses them."""

import socket
from contextlib import ExitStack

import pytest

from headrace.broker.network.processor import CALLS_PER_ITERATION, CallsToLoop, Processor


class Loop:
    """Keeps the calls of other threads, in their order."""

    def __init__(self):
        self.calls = []

    def call_soon_threadsafe(self, call):
        self.calls.append(call)

    call_soon = call_soon_threadsafe

    def run(self):
        while self.calls:
            self.calls.pop(0)()


class Channel:
    """A channel whose handshake waits for its turn. It has received bytes already."""

    def __init__(self, stack, processor):
        self.socket, other = (stack.enter_context(one) for one in socket.socketpair())
        other.send(b"hello")
        self.processor = processor
        self.used_by = []
        self.processor.watch(self)

    def fileno(self):
        return self.socket.fileno()

    def on_events(self, _events):
        self.processor.shake_hands_later(self)

    def shake_hands(self):
        self.used_by.append("handshake")

    def move_to(self, processor):
        self.processor = processor
        processor.do(self, Channel.receive)

    def receive(self):
        self.processor.calls_to_loop.add(lambda: self.used_by.append("request"))

    def fail(self, _reason):
        raise AssertionError("nothing fails here")


@pytest.fixture
def loop():
    return Loop()


@pytest.fixture
def stack():
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def processors(loop, stack):
    made = [Processor(name, loop, lambda: None) for name in ("old", "new")]
    yield made
    for processor in made:
        processor.stop()
        processor._run()


def test_a_call_that_fails_does_not_hold_up_the_calls_after_it(loop, caplog):
    done = []

    def fail():
        raise ValueError("our mistake")

    calls = CallsToLoop(loop, lambda: done.append("requests"))
    for call in (lambda: done.append("first"), fail, lambda: done.append("last")):
        calls.add(call)
    calls.hand_over()
    loop.run()
    assert done == ["first", "last", "requests"]
    assert "our mistake" in caplog.text


def test_many_calls_do_not_keep_the_loop_busy(loop):
    done = []
    calls = CallsToLoop(loop, lambda: done.append("requests"))
    for number in range(CALLS_PER_ITERATION + 10):
        calls.add(lambda number=number: done.append(number))
    calls.hand_over()
    loop.calls.pop(0)()
    assert done == [*range(CALLS_PER_ITERATION), "requests"]
    calls.add(lambda: done.append("later"))
    calls.hand_over()
    assert len(loop.calls) == 1
    loop.run()
    assert done[CALLS_PER_ITERATION + 1 :] == [
        *range(CALLS_PER_ITERATION, CALLS_PER_ITERATION + 10), "later", "requests",
    ]  # fmt: skip


def test_a_thread_does_not_continue_the_handshake_of_a_channel_that_has_moved(loop, stack, processors):
    old, new = processors
    channels = [Channel(stack, old) for _ in range(3)]
    old.retire(new, lambda: None)
    old._take_turn()
    while old._handshakes:
        old._take_turn()
    assert [len(channel.used_by) for channel in channels] == [1, 0, 0], "one handshake per turn, and then they moved"


def test_the_principal_of_a_moved_channel_comes_before_its_first_request(loop, stack, processors):
    old, new = processors
    channel = Channel(stack, old)
    old.retire(new, lambda: None)
    old.calls_to_loop.add(lambda: channel.used_by.append("principal"))
    moved = channel.move_to

    def move_to(processor):
        moved(processor)
        new._take_turn()  # the other thread is faster than the rest of this turn

    channel.move_to = move_to
    old._take_turn()
    loop.run()
    assert channel.used_by == ["handshake", "principal", "request"]
