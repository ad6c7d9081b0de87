"""Client instances on a manual clock: when a client may ask and push, and when the broker forgets it."""

from uuid import UUID

import pytest

from headrace.broker.configs.broker_config import BrokerConfig
from headrace.broker.telemetry.instances import ClientInstances, subscription_id
from headrace.broker.telemetry.subscriptions import Demand, Subscriptions
from headrace.broker.telemetry.telemetry import PushedMetrics, Telemetry
from headrace.protocol.errors import InvalidRequest, ThrottlingQuotaExceeded, UnknownSubscriptionId
from headrace.runtime.timer import Timer
from headrace.security.principal import ANONYMOUS
from headrace.testing import ManualClock

INTERVAL_MS = 1_000
FIRST, SECOND, THIRD = (UUID(int=number) for number in (2, 3, 4))


class FakeConnection:
    peer, host, client_software, principal = "127.0.0.1:5000", "127.0.0.1", ("fake", "1"), ANONYMOUS
    is_closed = False


class TelemetryHarness:
    """Telemetry with a subscription of all clients, on a manual clock."""

    def __init__(self, folder):
        self.clock = ManualClock()
        self.timer = Timer(self.clock)
        self.subscriptions = Subscriptions()
        self.subscriptions.put("all", {"metrics": "*", "interval.ms": str(INTERVAL_MS)})
        config = BrokerConfig.load({"log.dirs": str(folder)})
        self.telemetry = Telemetry(config, self.clock, self.timer, self.subscriptions)
        self.connection = FakeConnection()

    def reconnect(self):
        self.connection.is_closed = True
        self.connection = FakeConnection()

    def get(self, instance_id=FIRST):
        return self.telemetry.subscribe(instance_id, "client", self.connection)

    def push(self, instance, *, terminating=False, subscription_id=None):
        number = instance.subscription_id if subscription_id is None else subscription_id
        push = PushedMetrics(number, terminating, 0, b"")
        self.telemetry.accept(self.telemetry.check_push(instance.instance_id, "client", self.connection, push), [])

    def advance(self, duration_ms):
        self.clock.advance(duration_ms)
        self.timer.advance()


@pytest.fixture
def harness(tmp_path):
    return TelemetryHarness(tmp_path)


def test_a_client_may_ask_once_per_interval(harness):
    harness.get()
    harness.advance(INTERVAL_MS - 1)
    with pytest.raises(ThrottlingQuotaExceeded):
        harness.get()
    harness.advance(1)
    harness.get()
    assert harness.telemetry.counts.throttled == 1


def test_a_client_may_push_once_per_interval(harness):
    instance = harness.get()
    harness.push(instance)  # the first push may come at any time
    harness.advance(INTERVAL_MS - 1)
    with pytest.raises(ThrottlingQuotaExceeded):
        harness.push(instance)
    harness.advance(1)
    harness.push(instance)
    assert harness.telemetry.counts.pushes == 2


def test_the_first_push_after_a_new_subscription_may_come_early(harness):
    instance = harness.get()
    harness.push(instance)
    harness.advance(INTERVAL_MS)
    harness.get()
    harness.push(instance)


def test_the_last_push_is_the_last(harness):
    instance = harness.get()
    harness.push(instance)
    harness.push(instance, terminating=True)
    harness.advance(INTERVAL_MS)
    with pytest.raises(InvalidRequest):
        harness.push(instance)


def test_a_client_that_reconnects_starts_anew(harness):
    instance = harness.get()
    harness.push(instance)
    harness.push(instance, terminating=True)
    harness.reconnect()
    harness.push(instance)
    with pytest.raises(ThrottlingQuotaExceeded):
        harness.push(instance)
    with pytest.raises(ThrottlingQuotaExceeded):
        harness.get()
    harness.reconnect()
    harness.get()


def test_a_client_is_throttled_over_two_connections_as_over_one(harness):
    instance = harness.get()
    harness.push(instance)
    first, harness.connection = harness.connection, FakeConnection()
    with pytest.raises(ThrottlingQuotaExceeded):
        harness.push(instance)
    first.is_closed = True
    harness.push(instance)


def test_a_connection_that_is_gone_is_not_kept_in_memory(harness):
    instance = harness.get()
    assert not instance.is_disconnected
    harness.connection = None
    assert instance.is_disconnected


def test_a_changed_subscription_is_matched_at_the_next_request(harness):
    instance = harness.get()
    harness.subscriptions.put("more", {"metrics": "a", "interval.ms": "500"})
    with pytest.raises(UnknownSubscriptionId):
        harness.push(instance)
    changed = harness.get()
    assert changed.demand.interval_ms == 500
    assert changed.subscription_id != instance.subscription_id
    harness.push(changed)
    assert harness.telemetry.counts.unknown_subscriptions == 1


def test_an_instance_that_another_broker_has_made(harness):
    """All brokers compute the same subscription id."""
    unknown = harness.telemetry.instances._new(SECOND, {}, harness.connection)
    assert SECOND not in harness.telemetry.instances
    harness.push(unknown)
    assert SECOND in harness.telemetry.instances


def test_silent_clients_are_forgotten_after_a_minute_or_three_intervals(harness):
    harness.get(FIRST)
    harness.subscriptions.put("all", {"metrics": "*", "interval.ms": "100000"})
    harness.get(SECOND)
    for _ in range(3):
        harness.advance(30_000)
    assert FIRST not in harness.telemetry.instances
    assert SECOND in harness.telemetry.instances
    for _ in range(8):
        harness.advance(30_000)
    assert len(harness.telemetry.instances) == 0


def test_the_least_recently_active_instance_makes_room():
    instances, connection = ClientInstances(Subscriptions(), max_instances=2), FakeConnection()
    for now_ms, instance_id in enumerate((FIRST, SECOND, FIRST)):
        assert instances.of(instance_id, {}, connection, now_ms)[1] is None
    _, removed = instances.of(THIRD, {}, connection, 4)
    assert removed is not None
    assert removed.instance_id == SECOND
    assert [each.instance_id for each in instances] == [FIRST, THIRD]


def test_the_names_of_clients_are_cut(harness):
    class LongNames(FakeConnection):
        client_software = ("n" * 30_000, "v" * 30_000)

    instance = harness.telemetry.subscribe(FIRST, "c" * 30_000, LongNames())
    assert max(len(text or "") for text in instance.attributes.values()) == 256


@pytest.mark.parametrize(
    ("instance_id", "expected"),
    [("12345678-9abc-def0-1122-334455667788", -28_868_867), ("ffffffff-9abc-def0-1122-334455667788", 327_997_306)],
)
def test_the_subscription_id_is_that_of_apache_kafka(instance_id, expected):
    """Apache Kafka 4.3 answered these ids, for all metrics once per second."""
    assert subscription_id(Demand(("*",), 1_000), UUID(instance_id)) == expected
