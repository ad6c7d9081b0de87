"""The queue between connections and handlers, with requests that are only names and turns that are taken by hand."""

from headrace.broker.request_queue import TURN, RequestQueue
from headrace.protocol.api import Api


class Named:
    def __init__(self, name, api):
        self.name = name
        self.api = api


class Bench:
    def __init__(self, limit=500):
        self.limit = limit
        self.handled = []
        self.soon = []
        self.queue = RequestQueue(lambda: self.limit, self.handle, self.soon.append)

    def handle(self, request):
        self.handled.append(request.name)

    def put(self, name, *, is_control=False, on_room=None):
        api = Api.STOP_REPLICA if is_control else Api.METADATA
        return self.queue.put(Named(name, api), on_room or (lambda: None))

    def turn(self):
        callback, *self.soon[:] = self.soon
        callback()


def test_requests_are_handled_in_the_order_of_their_coming():
    bench = Bench()
    for name in "abc":
        assert bench.put(name)
    assert bench.handled == []
    bench.turn()
    assert bench.handled == ["a", "b", "c"]
    assert not bench.soon, "nothing is scheduled while nothing waits"


def test_one_turn_is_scheduled_however_many_come():
    bench = Bench()
    for name in "abc":
        bench.put(name)
    assert len(bench.soon) == 1


def test_control_requests_pass_data_requests():
    bench = Bench()
    for name in "abc":
        bench.put(name)
    bench.put("control 1", is_control=True)
    bench.put("control 2", is_control=True)
    bench.turn()
    assert bench.handled == ["control 1", "control 2", "a", "b", "c"]


def test_a_control_request_that_comes_between_turns_passes_what_is_left():
    bench = Bench()
    for number in range(TURN + 2):
        bench.put(number)
    bench.turn()
    assert bench.handled == list(range(TURN))
    assert len(bench.queue) == 2
    bench.put("control", is_control=True)
    bench.turn()
    assert bench.handled[TURN:] == ["control", TURN, TURN + 1]


def test_a_control_request_that_comes_while_a_data_request_is_handled_is_next():
    bench = Bench()

    def handle(request):
        bench.handled.append(request.name)
        if request.name == "a":
            bench.put("control", is_control=True)

    bench.queue = RequestQueue(lambda: 500, handle, bench.soon.append)
    bench.put("a")
    bench.put("b")
    bench.turn()
    assert bench.handled == ["a", "control", "b"]


def test_a_full_queue_calls_back_when_there_is_room_in_the_order_of_asking():
    bench = Bench(limit=2)
    called = []
    assert bench.put("a")
    assert bench.put("b")
    assert not bench.put("c", on_room=lambda: called.append(bench.put("c")))
    assert not bench.put("d", on_room=lambda: called.append(bench.put("d")))
    assert len(bench.queue) == 2
    bench.turn()
    assert called == [True, True]
    bench.turn()
    assert bench.handled == ["a", "b", "c", "d"]


def test_control_requests_do_not_need_room():
    bench = Bench(limit=1)
    bench.put("a")
    assert bench.put("control", is_control=True)


def test_nobody_is_forgotten_with_room_for_one():
    bench = Bench(limit=1)

    def connection(name):
        def put():
            bench.put(name, on_room=put)

        return put

    for name in range(50):
        connection(name)()
    turns = 0
    while bench.soon:
        bench.turn()
        turns += 1
    assert bench.handled == list(range(50))
    assert turns <= 51


def test_the_limit_may_change_at_run_time():
    bench = Bench(limit=1)
    bench.put("a")
    assert not bench.put("b")
    bench.limit = 2
    assert bench.put("b")


def test_held_requests_wait_and_control_requests_do_not():
    bench = Bench(limit=1)
    bench.queue.hold()
    bench.put("a")
    assert not bench.soon, "a turn would handle nothing"
    assert not bench.put("b", on_room=lambda: bench.put("b"))
    assert bench.put("control", is_control=True)
    bench.turn()
    assert bench.handled == ["control"]
    assert not bench.soon
    bench.queue.release()
    while bench.soon:
        bench.turn()
    assert bench.handled == ["control", "a", "b"]
