"""The queue between connections and handlers, with requests that are only names and turns that are taken by hand."""

from types import SimpleNamespace

from headrace.broker.network.request_queue import FEW_REQUESTS, REQUESTS_PER_TURN, RequestQueue
from headrace.protocol.api import Api


class Named:
    def __init__(self, name, api, is_login, client_id="client", host="127.0.0.1"):
        self.name = name
        self.api = api
        self.is_login = is_login
        self.client_id = client_id
        self.connection = SimpleNamespace(host=host)


class RequestQueueHarness:
    def __init__(self, limit=500):
        self.limit = limit
        self.handled = []
        self.soon = []
        self.queue = RequestQueue(lambda: self.limit, self.handle, self.soon.append)

    def handle(self, request):
        self.handled.append(request.name)

    def put(self, name, *, is_control=False, is_login=False, on_room=None, **client):
        api = Api.STOP_REPLICA if is_control else Api.METADATA
        return self.queue.put(Named(name, api, is_login, **client), on_room or (lambda: None))

    def turn(self):
        callback, *self.soon[:] = self.soon
        callback()


def test_requests_are_handled_in_the_order_of_their_coming():
    harness = RequestQueueHarness()
    for name in "abc":
        assert harness.put(name)
    assert harness.handled == []
    harness.turn()
    assert harness.handled == ["a", "b", "c"]
    assert not harness.soon, "nothing is scheduled while nothing waits"


def test_one_turn_is_scheduled_however_many_come():
    harness = RequestQueueHarness()
    for name in "abc":
        harness.put(name)
    assert len(harness.soon) == 1


def test_control_requests_pass_data_requests():
    harness = RequestQueueHarness()
    for name in "abc":
        harness.put(name)
    harness.put("control 1", is_control=True)
    harness.put("control 2", is_control=True)
    harness.turn()
    assert harness.handled == ["control 1", "control 2", "a", "b", "c"]


def test_a_control_request_that_comes_between_turns_passes_what_is_left():
    harness = RequestQueueHarness()
    for number in range(REQUESTS_PER_TURN + 2):
        harness.put(number)
    harness.turn()
    assert harness.handled == list(range(REQUESTS_PER_TURN))
    assert len(harness.queue) == 2
    harness.put("control", is_control=True)
    harness.turn()
    assert harness.handled[REQUESTS_PER_TURN:] == ["control", REQUESTS_PER_TURN, REQUESTS_PER_TURN + 1]


def test_a_control_request_that_comes_while_a_data_request_is_handled_is_next():
    harness = RequestQueueHarness()

    def handle(request):
        harness.handled.append(request.name)
        if request.name == "a":
            harness.put("control", is_control=True)

    harness.queue = RequestQueue(lambda: 500, handle, harness.soon.append)
    harness.put("a")
    harness.put("b")
    harness.turn()
    assert harness.handled == ["a", "control", "b"]


def test_a_full_queue_calls_back_when_there_is_room_in_the_order_of_asking():
    harness = RequestQueueHarness(limit=2)
    called = []
    assert harness.put("a")
    assert harness.put("b")
    assert not harness.put("c", on_room=lambda: called.append(harness.put("c")))
    assert not harness.put("d", on_room=lambda: called.append(harness.put("d")))
    assert len(harness.queue) == 2
    harness.turn()
    assert called == [True, True]
    harness.turn()
    assert harness.handled == ["a", "b", "c", "d"]


def test_control_requests_do_not_need_room():
    harness = RequestQueueHarness(limit=1)
    harness.put("a")
    assert harness.put("control", is_control=True)


def test_nobody_is_forgotten_with_room_for_one():
    harness = RequestQueueHarness(limit=1)

    def connection(name):
        def put():
            harness.put(name, on_room=put)

        return put

    for name in range(50):
        connection(name)()
    turns = 0
    while harness.soon:
        harness.turn()
        turns += 1
    assert harness.handled == list(range(50))
    assert turns <= 51


def test_the_limit_may_change_at_run_time():
    harness = RequestQueueHarness(limit=1)
    harness.put("a")
    assert not harness.put("b")
    harness.limit = 2
    assert harness.put("b")


def test_a_login_is_not_held():
    """The controller of a cluster has to log in before it can send what ends the hold."""
    harness = RequestQueueHarness(limit=1)
    harness.queue.hold()
    assert harness.put("data")
    assert harness.put("login", is_login=True)
    harness.turn()
    assert harness.handled == ["login"]


def test_held_requests_wait_and_control_requests_do_not():
    harness = RequestQueueHarness(limit=1)
    harness.queue.hold()
    harness.put("a")
    assert not harness.soon, "a turn would handle nothing"
    assert not harness.put("b", on_room=lambda: harness.put("b"))
    assert harness.put("control", is_control=True)
    harness.turn()
    assert harness.handled == ["control"]
    assert not harness.soon
    harness.queue.release()
    while harness.soon:
        harness.turn()
    assert harness.handled == ["control", "a", "b"]


def test_a_flood_of_logins_does_not_delay_data_requests():
    harness = RequestQueueHarness()

    def handle(request):
        harness.handled.append(request.name)
        if request.name == "login":
            harness.put("login", is_login=True)

    harness.queue = RequestQueue(lambda: 500, handle, harness.soon.append)
    harness.put("login", is_login=True)
    for name in "abc":
        harness.put(name)
    harness.turn()
    assert harness.handled[:7] == ["login", "a", "login", "b", "login", "c", "login"]


def test_control_requests_pass_logins():
    harness = RequestQueueHarness()
    harness.put("login", is_login=True)
    harness.put("control", is_control=True)
    harness.turn()
    assert harness.handled == ["control", "login"]


def test_a_client_with_many_requests_lets_others_take_turns():
    harness = RequestQueueHarness()
    for number in range(FEW_REQUESTS + 4):
        harness.put(number, client_id="crowd")
    harness.put("ordinary 1", client_id="ordinary")
    harness.put("ordinary 2", client_id="ordinary")
    harness.put("elsewhere", client_id="crowd", host="127.0.0.2")
    harness.turn()
    first, then = harness.handled[:FEW_REQUESTS], harness.handled[FEW_REQUESTS:]
    assert first == list(range(FEW_REQUESTS))
    assert then == [4, "ordinary 1", "elsewhere", 5, "ordinary 2", 6, 7]
    assert len(harness.queue) == 0


def test_the_requests_of_one_client_stay_in_the_order_of_their_coming():
    harness = RequestQueueHarness()
    for number in range(REQUESTS_PER_TURN):
        harness.put(number)
    harness.turn()
    assert harness.handled == list(range(REQUESTS_PER_TURN))


def test_a_request_that_arrives_while_many_wait_does_not_pass_those_of_its_client():
    harness = RequestQueueHarness()
    for number in range(REQUESTS_PER_TURN + 2):
        harness.put(number)
    harness.turn()
    harness.put("late")
    harness.put("another client", client_id="other")
    harness.turn()
    assert harness.handled[REQUESTS_PER_TURN:] == [
        REQUESTS_PER_TURN, "another client", REQUESTS_PER_TURN + 1, "late",
    ]  # fmt: skip


def test_after_many_requests_few_are_handled_in_the_order_of_their_coming_again():
    harness = RequestQueueHarness()
    for number in range(FEW_REQUESTS + 1):
        harness.put(number)
    harness.turn()
    harness.handled.clear()
    for name, client in (("a", "x"), ("b", "x"), ("c", "y")):
        harness.put(name, client_id=client)
    harness.turn()
    assert harness.handled == ["a", "b", "c"]


def test_clients_take_turns_for_room_in_a_full_queue():
    harness = RequestQueueHarness(limit=2)
    entered = []

    def put(name, client_id):
        def enter():
            assert harness.put(name, client_id=client_id)
            entered.append(name)

        assert not harness.put(name, client_id=client_id, on_room=enter)

    assert harness.put("first")
    assert harness.put("second")
    for name in ("crowd 1", "crowd 2", "crowd 3"):
        put(name, "crowd")
    put("ordinary", "ordinary")
    harness.turn()
    assert entered == ["crowd 1", "ordinary"]
    harness.turn()
    harness.turn()
    assert harness.handled == ["first", "second", "crowd 1", "ordinary", "crowd 2", "crowd 3"]
