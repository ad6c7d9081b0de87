"""The quota that limits a client: Kafka's precedence, against a plain model of Kafka's two steps (tags, then limit)."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.quotas.client_quotas import ClientQuotas, QuotaTags
from headrace.broker.quotas.entities import CLIENT_KEYS, DEFAULT, Entity

PRODUCE = "producer_byte_rate"
IP_RATE = "connection_creation_rate"

#: The entities that fit alice's client "app", in the order of precedence, with what a rate is measured for.
PRECEDENCE = [
    (Entity("alice", "app"), ("alice", "app")),
    (Entity("alice", DEFAULT), ("alice", "app")),
    (Entity("alice"), ("alice", "")),
    (Entity(DEFAULT, "app"), ("alice", "app")),
    (Entity(DEFAULT, DEFAULT), ("alice", "app")),
    (Entity(DEFAULT), ("alice", "")),
    (Entity(client_id="app"), ("", "app")),
    (Entity(client_id=DEFAULT), ("", "app")),
]


def quotas_of(limits):
    quotas = ClientQuotas()
    for entity, limit in limits.items():
        quotas.replace(entity, {PRODUCE: limit})
    return quotas


@pytest.mark.parametrize("first", range(8))
def test_the_first_entity_that_fits_counts(first):
    quotas = quotas_of({entity: rank + 1.0 for rank, (entity, _) in enumerate(PRECEDENCE) if rank >= first})
    assert quotas.limit(PRODUCE, "alice", "app") == (first + 1.0, PRECEDENCE[first][1])


def test_there_is_no_limit_without_quotas():
    quotas = ClientQuotas()
    assert not any(table.any for table in quotas.tables.values())
    assert quotas.limit(PRODUCE, "alice", "app") is None
    quotas.replace(Entity("bob"), {PRODUCE: 1.0})
    assert quotas.tables[PRODUCE].any
    assert quotas.limit(PRODUCE, "alice", "app") is None


def test_each_key_has_its_own_precedence():
    quotas = quotas_of({Entity(client_id="app"): 1.0})
    quotas.replace(Entity("alice"), {"consumer_byte_rate": 2.0})
    assert quotas.limit(PRODUCE, "alice", "app") == (1.0, ("", "app"))
    assert quotas.limit("consumer_byte_rate", "alice", "app") == (2.0, ("alice", ""))


def test_a_removed_quota_uncovers_the_next_one():
    quotas = quotas_of({Entity("alice"): 1.0, Entity(DEFAULT): 2.0})
    quotas.replace(Entity("alice"), {})
    assert quotas.limit(PRODUCE, "alice", "app") == (2.0, ("alice", ""))
    quotas.replace(Entity(DEFAULT), {})
    assert quotas.limit(PRODUCE, "alice", "app") is None
    assert not quotas.tables[PRODUCE].any
    assert len(quotas) == 0


@pytest.mark.parametrize(
    ("entity", "limit"),
    [
        (Entity("alice"), (1.0, ("alice", ""))),
        (Entity(DEFAULT), (1.0, ("alice", ""))),
        (Entity("alice", DEFAULT), None),
        (Entity(DEFAULT, DEFAULT), None),
        (Entity(client_id=DEFAULT), None),
    ],
)
def test_a_client_without_a_client_id_has_the_limits_of_users_only(entity, limit):
    assert quotas_of({entity: 1.0}).limit(PRODUCE, "alice", "") == limit


# -- against a model


def tags_by_kafka(has, user, client_id):
    """DefaultQuotaCallback.quotaMetricTags, as a list of questions."""
    questions = [
        ((user, client_id), (user, client_id)),
        ((user, DEFAULT), (user, client_id)),
        ((user, None), (user, "")),
        ((DEFAULT, client_id), (user, client_id)),
        ((DEFAULT, DEFAULT), (user, client_id)),
        ((DEFAULT, None), (user, "")),
    ]
    return next((tags for question, tags in questions if has(question)), ("", client_id))


def limit_by_kafka(limits, user, client_id):
    """DefaultQuotaCallback.quotaLimit of these tags."""
    tags = tags_by_kafka(limits.__contains__, user, client_id)
    user_tag, client_tag = tags
    if user_tag and client_tag:
        candidates = [(user_tag, client_tag), (user_tag, DEFAULT), (DEFAULT, client_tag), (DEFAULT, DEFAULT)]
    elif user_tag:
        candidates = [(user_tag, None), (DEFAULT, None)]
    elif client_tag:
        candidates = [(None, client_tag), (None, DEFAULT)]
    else:
        candidates = []
    found = next((limits[each] for each in candidates if each in limits), None)
    return None if found is None else (found, tags)


some_names = st.sampled_from(["a", "b", DEFAULT, None])
pairs = st.tuples(some_names, some_names).filter(lambda pair: pair != (None, None))
changes = st.lists(st.tuples(pairs, st.none() | st.floats(1, 9)), max_size=20)


@given(changes, st.sampled_from(["a", "b", "c", ""]), st.sampled_from(["a", "b", "c", ""]))
def test_limits_and_tags_are_those_of_a_plain_model(steps, user, client_id):
    quotas, limits = ClientQuotas(), {}
    for pair, limit in steps:
        quotas.replace(Entity(*pair), {} if limit is None else {PRODUCE: limit})
        limits.pop(pair, None)
        if limit is not None:
            limits[pair] = limit
    assert quotas.limit(PRODUCE, user, client_id) == limit_by_kafka(limits, user, client_id)
    assert {entity[:2]: values[PRODUCE] for entity, values in quotas.items()} == limits
    assert quotas.tables[PRODUCE].any == bool(limits)


# -- ips


def test_an_ip_has_its_own_limit_or_that_of_the_default_ip():
    quotas = ClientQuotas()
    assert quotas.ip_limit("10.0.0.1") is None
    quotas.replace(Entity(ip=DEFAULT), {IP_RATE: 5.0})
    quotas.replace(Entity(ip="10.0.0.1"), {IP_RATE: 2.0})
    assert (quotas.ip_limit("10.0.0.1"), quotas.ip_limit("10.0.0.2")) == (2.0, 5.0)
    quotas.replace(Entity(ip="10.0.0.1"), {})
    assert quotas.ip_limit("10.0.0.1") == 5.0
    quotas.replace(Entity(ip=DEFAULT), {})
    assert quotas.ip_limit("10.0.0.1") is None
    assert not quotas.any_ip


def test_ips_are_compared_as_addresses():
    quotas = ClientQuotas()
    quotas.replace(Entity(ip="0:0:0:0:0:0:0:1"), {IP_RATE: 1.0})
    quotas.replace(Entity(ip="127.0.0.1"), {IP_RATE: 2.0})
    assert quotas.ip_limit("::1") == 1.0
    assert quotas.ip_limit("::ffff:127.0.0.1") == 2.0


def test_the_smallest_limit_counts_if_several_names_have_one_address():
    quotas = ClientQuotas()
    quotas.replace(Entity(ip="localhost"), {IP_RATE: 3.0}, address="127.0.0.1")
    quotas.replace(Entity(ip="127.0.0.1"), {IP_RATE: 2.0})
    assert quotas.ip_limit("127.0.0.1") == 2.0
    quotas.replace(Entity(ip="127.0.0.1"), {})
    assert quotas.ip_limit("127.0.0.1") == 3.0
    quotas.replace(Entity(ip="localhost"), {IP_RATE: 3.0}, address="127.0.0.2")
    assert (quotas.ip_limit("127.0.0.1"), quotas.ip_limit("127.0.0.2")) == (None, 3.0)


# -- versions and size


def test_the_version_grows_with_each_change_and_only_then():
    quotas = quotas_of({Entity("alice"): 1.0})
    quotas.replace(Entity(ip="10.0.0.1"), {IP_RATE: 2.0})
    before = quotas.version
    quotas.replace(Entity("alice"), {PRODUCE: 1.0})
    quotas.replace(Entity(ip="10.0.0.1"), {IP_RATE: 2.0})
    quotas.replace(Entity("bob"), {})
    assert quotas.version == before
    quotas.replace(Entity("alice"), {PRODUCE: 2.0})
    assert quotas.version > before


def test_ten_thousand_entities_need_less_than_20_mb():
    tracemalloc.start()
    try:
        quotas = ClientQuotas()
        for number in range(10_000):
            limits = dict.fromkeys(CLIENT_KEYS, 1000.0 + number)
            quotas.replace(Entity(f"user-with-a-name-{number}", f"client-with-a-name-{number}"), limits)
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(quotas) == 10_000
    assert held_bytes < 20_000_000
    last = QuotaTags("user-with-a-name-9999", "client-with-a-name-9999")
    assert quotas.limit(PRODUCE, *last) == (10_999.0, last)


@pytest.mark.parametrize("count", [1, 10_000])
def test_a_lookup_needs_at_most_eight_lookups_in_a_dictionary(count):
    class CountingDict(dict):
        gets = 0

        def get(self, key, default=None):
            self.gets += 1
            return super().get(key, default)

    quotas = ClientQuotas()
    table = quotas.tables[PRODUCE]
    table._limits = counting = CountingDict()
    for number in range(count):
        quotas.replace(Entity(f"u{number}", f"c{number}"), {PRODUCE: 1.0})
    assert quotas.limit(PRODUCE, "nobody", "nothing") is None
    assert counting.gets == 8
    assert quotas.limit(PRODUCE, f"u{count - 1}", f"c{count - 1}") is not None
    assert counting.gets == 9
