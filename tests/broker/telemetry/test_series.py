"""The stored metrics of clients: deltas add up, and the number of series is bounded."""

from uuid import UUID

from headrace.broker.telemetry.instances import ClientInstances
from headrace.broker.telemetry.points import Distribution, Point, PointKind
from headrace.broker.telemetry.series import MAX_SERIES_PER_CLIENT, PushedFamily, SeriesStore, families
from headrace.broker.telemetry.subscriptions import Subscriptions
from headrace.security.principal import Principal

CLIENT = {
    "client_instance_id": "id",
    "client_id": None,
    "client_software_name": "n",
    "client_software_version": "v",
}
LABELS = {**CLIENT, "client_id": "", "principal": "User:p"}


class FakeConnection:
    is_closed = False

    def __init__(self, user="p"):
        self.principal = Principal("User", user)


def instance(number=2, user="p"):
    return ClientInstances(Subscriptions()).of(UUID(int=number), CLIENT, FakeConnection(user), 0)[0]


def point(value, name="m", kind=PointKind.GAUGE, *, delta=False, **labels):
    return Point(name, kind, tuple(sorted(labels.items())), value, delta)


def store(max_series=100):
    return SeriesStore(lambda: max_series)


def samples(store, name="m"):
    (family,) = [family for family in families(store.clients()) if family.name == name]
    return [value for _, value in family.samples]


def test_the_last_value_of_a_gauge_counts():
    stored = store()
    stored.update(instance(), [point(1.0)])
    stored.update(instance(), [point(2.0)])
    assert list(families(stored.clients())) == [PushedFamily("m", PointKind.GAUGE, [(LABELS, 2.0)])]


def test_deltas_add_up():
    stored = store()
    for value in (1.0, 2.0, 4.0):
        stored.update(instance(), [point(value, kind=PointKind.COUNTER, delta=True)])
    assert samples(stored) == [7.0]


def test_histograms_add_up_until_their_buckets_change():
    stored = store()
    first, second = Distribution(3, 5.0, (1.0,), (1, 2)), Distribution(1, 9.0, (1.0,), (0, 1))
    other = Distribution(1, 1.0, (7.0,), (1, 0))
    for value in (first, second):
        stored.update(instance(), [point(value, kind=PointKind.HISTOGRAM, delta=True)])
    assert samples(stored) == [Distribution(4, 14.0, (1.0,), (1, 3))]
    stored.update(instance(), [point(other, kind=PointKind.HISTOGRAM, delta=True)])
    assert samples(stored) == [other]


def test_series_differ_by_client_and_labels():
    stored = store()
    stored.update(instance(2), [point(1.0, topic="a"), point(2.0, topic="b")])
    stored.update(instance(3), [point(3.0, topic="a")])
    assert samples(stored) == [1.0, 2.0, 3.0]
    stored.forget(UUID(int=2))
    assert (samples(stored), stored.count) == ([3.0], 1)


def test_the_broker_has_a_largest_number_of_series():
    stored = store(max_series=3)
    stored.update(instance(2), [point(1.0, name=f"m{number}") for number in range(5)])
    assert (stored.count, stored.dropped) == (3, 2)
    stored.update(instance(2), [point(9.0, name="m0")])  # a known series is updated all the same
    assert samples(stored, "m0") == [9.0]
    stored.forget(UUID(int=2))
    stored.update(instance(3), [point(1.0)])
    assert stored.count == 1


def test_a_client_has_a_largest_number_of_series():
    stored = store(max_series=1_000_000)
    stored.update(instance(), [point(1.0, name=f"m{number}") for number in range(MAX_SERIES_PER_CLIENT + 7)])
    assert (stored.count, stored.dropped) == (MAX_SERIES_PER_CLIENT, 7)


def test_a_series_that_the_last_three_pushes_lack_is_removed():
    stored = store()
    stored.update(instance(), [point(1.0, member="old"), point(2.0)])
    for _ in range(3):
        assert samples(stored) == [1.0, 2.0]
        stored.update(instance(), [point(2.0)])
    assert (samples(stored), stored.count) == ([2.0], 1)


def test_a_sum_stays_while_its_client_sends_no_delta():
    """A client leaves out the delta of a counter that has not changed, and the counter began at 0 again."""
    stored = store()
    stored.update(instance(), [point(4.0, kind=PointKind.COUNTER, delta=True)])
    for _ in range(10):
        stored.update(instance(), [point(1.0, name="gauge")])
    stored.update(instance(), [point(3.0, kind=PointKind.COUNTER, delta=True)])
    assert samples(stored) == [7.0]


def test_outdated_sums_make_room_for_other_series():
    stored = store(max_series=1_000_000)
    for number in range(MAX_SERIES_PER_CLIENT):
        stored.update(instance(), [point(1.0, kind=PointKind.COUNTER, delta=True, member=f"old {number}")])
    stored.update(instance(), [point(2.0, kind=PointKind.COUNTER, delta=True, member="new")])
    assert (samples(stored)[-1], stored.dropped) == (2.0, 0)


def test_a_name_has_one_kind():
    stored = store()
    stored.update(instance(2), [point(1.0)])
    stored.update(instance(3), [point(2.0, kind=PointKind.COUNTER)])
    assert list(families(stored.clients())) == [PushedFamily("m", PointKind.GAUGE, [(LABELS, 1.0)])]


def test_a_client_cannot_take_the_labels_of_another():
    stored = store()
    stored.update(instance(), [point(1.0, client_id="victim"), point(2.0, client_id="other")])
    assert list(families(stored.clients())) == [PushedFamily("m", PointKind.GAUGE, [(LABELS, 1.0)])]


def test_another_user_with_the_same_id_does_not_add_to_the_series():
    stored = store()
    stored.update(instance(user="p"), [point(5.0, kind=PointKind.COUNTER, delta=True), point(1.0, name="other")])
    stored.update(instance(user="q"), [point(3.0, kind=PointKind.COUNTER, delta=True)])
    (client,) = stored.clients()
    assert client.labels["principal"] == "User:q"
    assert list(client.values.values()) == [3.0]
    assert stored.count == 1
