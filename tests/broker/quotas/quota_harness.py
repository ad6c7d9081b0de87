"""Sets quotas on a broker that runs on its own thread, without the way through the znode tree."""

from contextlib import contextmanager
from datetime import timedelta

from broker_harness import NOW_MS, Client, on_loop

from headrace import Broker
from headrace.broker.quotas.entities import Entity
from headrace.protocol.api import Api
from headrace.testing import ManualClock, pass_time

MB = 1_000_000
#: The client id of most clients of a test.
CLIENT = Entity(client_id="c")


def set_quota(broker, entity=CLIENT, **limits):
    """Sets all quotas of an entity; without limits, removes them."""
    on_loop(broker, broker.core.client_quotas.replace, entity, limits)


def throttle_ms(answer):
    return answer.throttle_time // timedelta(milliseconds=1)


def connections(broker):
    return on_loop(broker, lambda: list(broker.core.connections))


def muted(broker):
    """The kinds of quotas because of which connections are muted."""
    return sorted(kind for each in connections(broker) if (kind := each.muted_by))


def metadata(client, version=12):
    """Any request that has no quota of its own."""
    return client.metadata([], version)


def has_answer(client):
    """Whether an answer has come. The caller has made sure that the broker has handled the request if it could."""
    client.socket.setblocking(False)
    try:
        return bool(client.socket.recv(1, 2))  # MSG_PEEK
    except BlockingIOError:
        return False
    finally:
        client.socket.settimeout(10)


def settle(broker):
    """Waits until the broker has read what was sent to it, on a connection that is not muted."""
    with Client(broker.bootstrap_servers, client_id="settling") as other:
        for _ in range(3):
            assert other.ask(Api.API_VERSIONS, 0).error_code == 0


class Manual:
    """A broker whose time stands still."""

    def __init__(self, broker, clock):
        self.broker = broker
        self.clock = clock

    def set_quota(self, entity=CLIENT, **limits):
        set_quota(self.broker, entity, **limits)

    def client(self, client_id="c"):
        return Client(self.broker.bootstrap_servers, client_id=client_id)

    def wait(self, by_ms):
        pass_time(self.broker, self.clock, by_ms)

    @property
    def muted(self):
        return muted(self.broker)


@contextmanager
def manual_broker(**config):
    clock = ManualClock(NOW_MS)
    with Broker(clock=clock, config={name.replace("_", "."): value for name, value in config.items()}) as broker:
        yield Manual(broker, clock)
