"""Throttled connections of a broker whose clock the tests move (KIP-219)."""

from contextlib import suppress

import pytest
from broker_harness import all_versions, batch, fetch_request, on_loop
from quota_harness import MB, connections, has_answer, manual_broker, metadata, settle, throttle_ms

from headrace.broker.quotas.client_rates import MAX_RATES, UNUSED_MS
from headrace.broker.quotas.entities import DEFAULT, Entity
from headrace.protocol.api import Api


@pytest.fixture
def manual():
    with manual_broker() as manual:
        yield manual


def produce(client, topic, size_bytes, *, version=9, acks=-1, send=None):
    data = {"name": topic, "topic_id": None,
            "partition_data": [{"index": 0, "records": batch(value=b"v" * size_bytes)}]}  # fmt: skip
    ask = client.ask if send is None else send
    return ask(Api.PRODUCE, version, acks=acks, timeout=10_000, topic_data=[data])


def test_an_answer_comes_at_once_and_the_next_request_waits(manual):
    with manual.client() as client:
        topic = client.create_topic()
        manual.set_quota(producer_byte_rate=10_000)
        assert throttle_ms(produce(client, topic, 90_000)) == 0
        answer = produce(client, topic, 20_000)
        assert answer.responses[0].partition_responses[0].error_code == 0
        # 110,000 bytes at 10,000 per second take 11 seconds, of which ten count from the begin.
        assert 1_000 <= throttle_ms(answer) < 1_100
        assert manual.muted == ["Produce"]
        client.send(Api.API_VERSIONS, 0)
        settle(manual.broker)
        manual.wait(throttle_ms(answer) - 1)
        settle(manual.broker)
        assert not has_answer(client)
        manual.wait(1)
        assert client.receive().error_code == 0
        assert manual.muted == []


@pytest.mark.parametrize("version", all_versions(Api.PRODUCE))
def test_all_versions_are_throttled(manual, version):
    with manual.client() as client:
        topic = client.create_topic()
        named = {"name": topic, "topic_id": client.id_of(topic)}
        manual.set_quota(producer_byte_rate=1_000)
        data = {**named, "partition_data": [{"index": 0, "records": batch(value=b"v" * 20_000)}]}
        fields = {"acks": 1, "timeout": 1_000, "topic_data": [data], "transactional_id": None}
        answer = client.ask(Api.PRODUCE, version, **fields)
        assert 10_000 < throttle_ms(answer) < 11_000
        assert manual.muted == ["Produce"]


def test_clients_share_the_rate_of_their_entity_and_others_are_not_disturbed(manual):
    manual.set_quota(Entity(client_id="limited"), producer_byte_rate=10_000)
    with manual.client("limited") as first, manual.client("limited") as second, manual.client("free") as free:
        topic = free.create_topic()
        assert throttle_ms(produce(first, topic, 95_000)) == 0
        assert throttle_ms(produce(second, topic, 95_000)) > 8_000
        assert throttle_ms(produce(first, topic, 10)) > 8_000, "the first connection was not muted before"
        assert throttle_ms(produce(free, topic, 500_000)) == 0
        assert manual.muted == ["Produce", "Produce"]


def test_each_client_of_the_default_has_its_own_rate(manual):
    manual.set_quota(Entity(client_id=DEFAULT), producer_byte_rate=10_000)
    with manual.client("a") as first, manual.client("b") as second:
        topic = first.create_topic()
        assert throttle_ms(produce(first, topic, 95_000)) == 0
        assert throttle_ms(produce(second, topic, 95_000)) == 0


def test_a_produce_without_an_answer_mutes_too(manual):
    with manual.client() as client:
        topic = client.create_topic()
        manual.set_quota(producer_byte_rate=1_000, request_percentage=0.00001)
        client.send(Api.METADATA, 12, topics=[], allow_auto_topic_creation=False,
                    include_cluster_authorized_operations=False, include_topic_authorized_operations=False)  # fmt: skip
        assert throttle_ms(client.receive()) == 1_000, "the time of requests is limited"
        manual.wait(60_000)
        # So few bytes that they arrive at once: nothing else says when the broker has handled the request.
        produce(client, topic, 20_000, acks=0, send=lambda *a, **f: client.send(*a, expects_answer=False, **f))
        client.send(Api.API_VERSIONS, 0)
        settle(manual.broker)
        assert manual.muted == ["Produce"]
        manual.wait(9_000)
        settle(manual.broker)
        assert not has_answer(client)
        manual.wait(2_000)
        assert client.receive().error_code == 0


def test_answers_that_were_held_back_are_sent_before_the_connection_is_muted(manual):
    """The broker sends answers together if the next request is there already. A muted connection must not keep them."""
    with manual.client() as client:
        topic = client.create_topic()
        manual.set_quota(producer_byte_rate=1_000)
        frames = []
        client.send_frame, send_frame = frames.append, client.send_frame
        metadata_fields = {"topics": [], "allow_auto_topic_creation": False,
                           "include_cluster_authorized_operations": False,
                           "include_topic_authorized_operations": False}  # fmt: skip
        client.send(Api.METADATA, 12, **metadata_fields)
        produce(client, topic, 12_000, acks=0, send=lambda *a, **f: client.send(*a, expects_answer=False, **f))
        client.send(Api.METADATA, 12, **metadata_fields)
        client.send_frame = send_frame
        client.send_bytes(b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames))
        assert client.receive().topics == ()
        settle(manual.broker)
        assert not has_answer(client)
        manual.wait(60_000)
        assert client.receive().topics == ()


# -- fetch


def fetch(client, topic, offset=0, version=12, **fields):
    return client.ask(Api.FETCH, version, **fetch_request((topic, 0, offset), **fields))


def records_of(answer):
    return b"".join(part.records or b"" for topic in answer.responses for part in topic.partitions)


@pytest.mark.parametrize("version", all_versions(Api.FETCH))
def test_a_throttled_fetch_is_empty(manual, version):
    with manual.client() as client:
        topic = client.create_topic()
        wanted = client.id_of(topic) if version >= 13 else topic
        for _ in range(4):
            assert throttle_ms(produce(client, topic, 40_000)) == 0
        manual.set_quota(consumer_byte_rate=10_000)
        first = fetch(client, wanted, 0, version, partition_max_bytes=90_000)
        assert len(records_of(first)) > 80_000
        assert throttle_ms(first) == 0
        second = fetch(client, wanted, 2, version, partition_max_bytes=50_000)
        assert records_of(second) == b""
        assert second.responses == ()
        assert 2_000 < throttle_ms(second) < 2_500
        assert getattr(second, "error_code", 0) == 0
        assert manual.muted == ["Fetch"]
        # What was not sent does not count: the same fetch succeeds when the first one counts no more.
        manual.wait(11_000)
        third = fetch(client, wanted, 2, version, partition_max_bytes=50_000)
        assert len(records_of(third)) > 40_000
        assert throttle_ms(third) == 0


def test_a_fetch_is_limited_to_what_the_windows_allow(manual):
    with manual.client() as client:
        topic = client.create_topic()
        for _ in range(10):
            produce(client, topic, 10_000)
        manual.set_quota(consumer_byte_rate=5_000)
        answer = fetch(client, topic, min_bytes=90_000, max_wait=0)
        assert 40_000 < len(records_of(answer)) < 50_000
        assert throttle_ms(answer) == 0


def test_a_fetch_that_asks_for_more_than_the_windows_allow_does_not_wait_for_it(manual):
    with manual.client() as client:
        topic = client.create_topic()
        for _ in range(10):
            produce(client, topic, 10_000)
        manual.set_quota(consumer_byte_rate=2_000)
        answer = fetch(client, topic, min_bytes=90_000, max_wait=60_000)
        assert len(records_of(answer)) > 10_000


def test_a_batch_larger_than_the_windows_is_sent_and_then_the_consumer_waits(manual):
    """In Kafka the consumer would never get it."""
    with manual.client() as client:
        topic = client.create_topic()
        produce(client, topic, 500_000)
        manual.set_quota(consumer_byte_rate=10_000)
        first = fetch(client, topic)
        assert len(records_of(first)) > 500_000
        assert throttle_ms(first) > 39_000
        manual.wait(throttle_ms(first))
        again = fetch(client, topic)
        assert len(records_of(again)) > 500_000
        with manual.client() as other:
            assert records_of(fetch(other, topic)) == b""


def test_a_throttled_fetch_leaves_its_session_as_it_was(manual):
    with manual.client() as client:
        topic = client.create_topic()
        produce(client, topic, 40_000)
        manual.set_quota(consumer_byte_rate=5_000)
        opened = fetch(client, topic, session_id=0, session_epoch=0)
        assert len(records_of(opened)) > 0
        session = {"session_id": opened.session_id, "forgotten": ()}
        produce(client, topic, 40_000)
        empty = client.ask(Api.FETCH, 12, **fetch_request((topic, 0, 1), session_epoch=1, **session))
        assert (empty.session_id, empty.responses) == (opened.session_id, ())
        assert throttle_ms(empty) > 0
        manual.wait(60_000)
        full = client.ask(Api.FETCH, 12, **fetch_request([], session_epoch=2, **session))
        assert len(records_of(full)) > 40_000, "the answer has what the throttled one would have had"


def test_a_full_fetch_that_is_throttled_begins_no_session(manual):
    with manual.client() as client:
        topic = client.create_topic()
        produce(client, topic, 40_000)
        manual.set_quota(consumer_byte_rate=5_000)
        assert throttle_ms(fetch(client, topic)) == 0
        answer = fetch(client, topic, session_id=0, session_epoch=0)
        assert throttle_ms(answer) > 0
        assert answer.session_id == 0
        assert len(manual.broker.core.fetch_sessions) == 0


# -- request time


def test_the_time_of_requests_is_limited(manual):
    with manual.client() as client:
        manual.set_quota(request_percentage=0.00001)
        assert throttle_ms(metadata(client)) == 1_000, "never longer than a window"
        assert manual.muted == ["Request"]
        manual.wait(1_000)
        assert throttle_ms(metadata(client)) == 1_000
        manual.set_quota(request_percentage=500.0)
        manual.wait(1_000)
        assert throttle_ms(metadata(client)) == 0


def test_a_throttled_request_of_a_consumer_has_no_records(manual):
    with manual.client() as client:
        topic = client.create_topic()
        produce(client, topic, 1_000)
        manual.set_quota(request_percentage=0.00001, consumer_byte_rate=100 * MB)
        answer = fetch(client, topic)
        assert throttle_ms(answer) == 1_000
        assert records_of(answer) == b""
        rates = list(manual.broker.core.enforcement.throttling.fetch)
        assert [rate.rate.total for rate in rates] == [0]


def test_the_longer_throttle_time_counts(manual):
    with manual.client() as client:
        topic = client.create_topic()
        manual.set_quota(request_percentage=0.00001, producer_byte_rate=1_000)
        assert throttle_ms(produce(client, topic, 20_000)) > 10_000
        assert manual.muted == ["Produce"]
        with manual.client() as other:
            manual.set_quota(request_percentage=0.00001, producer_byte_rate=100 * MB)
            assert throttle_ms(produce(other, topic, 2_000)) == 1_000
            assert manual.muted == ["Produce", "Request"]


def test_control_requests_of_a_muted_connection_wait(manual):
    """Also requests without a quota wait: nothing is read while the connection is muted."""
    with manual.client() as client:
        topic = client.create_topic()
        manual.set_quota(producer_byte_rate=1_000)
        assert throttle_ms(produce(client, topic, 20_000)) > 0
        manual.set_quota()
        client.send(Api.LIST_GROUPS, 0)
        settle(manual.broker)
        assert not has_answer(client)
        manual.wait(12_000)
        assert client.receive().error_code == 0


# -- changes


def test_another_limit_counts_from_the_next_request_on(manual):
    with manual.client() as client:
        topic = client.create_topic()
        manual.set_quota(producer_byte_rate=10_000)
        assert throttle_ms(produce(client, topic, 90_000)) == 0
        manual.set_quota(producer_byte_rate=5_000)
        lowered = throttle_ms(produce(client, topic, 10))
        assert 8_000 <= lowered < 9_000
        manual.wait(lowered)
        manual.set_quota(producer_byte_rate=1_000_000)
        assert throttle_ms(produce(client, topic, 100_000)) == 0


def test_without_a_quota_nothing_is_throttled_any_more(manual):
    with manual.client() as client:
        topic = client.create_topic()
        manual.set_quota(producer_byte_rate=1_000)
        delay_ms = throttle_ms(produce(client, topic, 12_000))
        assert delay_ms > 0
        manual.set_quota()
        manual.wait(delay_ms)
        assert throttle_ms(produce(client, topic, 500_000)) == 0
        assert manual.muted == []


def test_another_client_id_on_the_same_connection_has_its_own_limit(manual):
    manual.set_quota(Entity(client_id="limited"), producer_byte_rate=1_000)
    with manual.client("free") as client:
        topic = client.create_topic()
        assert throttle_ms(produce(client, topic, 100_000)) == 0
        client._client_id = "limited"
        assert throttle_ms(produce(client, topic, 100_000)) > 0


def test_rates_that_are_unused_for_an_hour_are_forgotten(manual):
    manual.set_quota(Entity(client_id=DEFAULT), producer_byte_rate=10 * MB)
    throttling = manual.broker.core.enforcement.throttling
    with manual.client("a") as first, manual.client("b") as second:
        topic = first.create_topic()
        produce(first, topic, 1_000)
        produce(second, topic, 1_000)
        assert len(throttling.produce) == 2
        for _ in range(13):
            manual.wait(UNUSED_MS // 12)
            produce(first, topic, 1_000)
        assert [rate.tags.client_id for rate in throttling.produce] == ["a"]
        produce(second, topic, 1_000)
        assert len(throttling.produce) == 2, "the connection does not count in a rate that was forgotten"


def test_a_client_cannot_make_rates_without_bound(manual):
    manual.set_quota(Entity(client_id=DEFAULT), producer_byte_rate=10 * MB)
    throttling = manual.broker.core.enforcement.throttling
    with manual.client("a") as client:
        produce(client, client.create_topic(), 1_000)
        principal = connections(manual.broker)[0].principal

        def look_up_many():
            for number in range(MAX_RATES + 100):
                throttling._look_up(principal, f"invented-{number}")
            return len(throttling.produce)

        assert on_loop(manual.broker, look_up_many) <= MAX_RATES


# -- muted connections


def test_a_client_that_goes_away_while_it_is_muted_is_noticed(manual):
    client = manual.client()
    topic = client.create_topic()
    manual.set_quota(producer_byte_rate=1)
    assert throttle_ms(produce(client, topic, 20_000)) > 1_000_000
    assert manual.muted == ["Produce"]
    client.close()
    settle(manual.broker)
    assert connections(manual.broker) == []


def test_a_broker_with_muted_connections_stops():
    with manual_broker() as manual:
        client = manual.client()
        topic = client.create_topic()
        manual.set_quota(producer_byte_rate=1)
        produce(client, topic, 20_000)
        client.send(Api.API_VERSIONS, 0)
        assert manual.muted == ["Produce"]
    assert client.is_closed_by_peer()
    client.close()


def test_a_muted_connection_is_not_idle():
    with manual_broker(connections_max_idle_ms=1_000) as manual, manual.client() as client:
        topic = client.create_topic()
        manual.set_quota(producer_byte_rate=1_000)
        delay_ms = throttle_ms(produce(client, topic, 100_000))
        for _ in range(delay_ms // 500):
            manual.wait(500)
        client.send(Api.API_VERSIONS, 0)
        manual.wait(delay_ms % 500)
        assert client.receive().error_code == 0


def test_a_muted_connection_keeps_little_memory(manual):
    with manual.client() as client:
        topic = client.create_topic()
        manual.set_quota(producer_byte_rate=1_000)
        assert throttle_ms(produce(client, topic, 900_000)) > 0
        (connection,) = connections(manual.broker)
        assert connection.frames.capacity_bytes == 16 * 1024
        client.socket.setblocking(False)
        with suppress(BlockingIOError):  # the client's sends block: the broker does not read
            for _ in range(1_000):
                client.socket.send(b"\0" * 65_536)
            pytest.fail("the broker reads")
        assert connection.frames.capacity_bytes == 16 * 1024


def test_a_muted_connection_is_not_the_first_to_be_closed_for_others():
    with manual_broker(max_connections=10) as manual, manual.client() as client:
        topic = client.create_topic()
        manual.set_quota(producer_byte_rate=1_000)
        produce(client, topic, 100_000)
        (connection,) = connections(manual.broker)
        assert connection.is_busy


def test_a_large_number_of_partitions_is_throttled_too(manual):
    with manual.client() as client:
        topic = client.create_topic(partitions=1_001)
        produce(client, topic, 40_000)
        manual.set_quota(consumer_byte_rate=5_000)
        wanted = [(topic, number, 0) for number in range(1_001)]
        assert len(records_of(client.ask(Api.FETCH, 12, **fetch_request(wanted)))) > 40_000
        empty = client.ask(Api.FETCH, 12, **fetch_request(wanted))
        assert (records_of(empty), empty.responses) == (b"", ())
        assert throttle_ms(empty) > 0


def test_logins_and_requests_without_quotas_are_not_charged(manual):
    manual.set_quota(Entity(client_id="somebody-else"), producer_byte_rate=1, request_percentage=0.00001)
    with manual.client() as client:
        topic = client.create_topic()
        assert throttle_ms(produce(client, topic, 100_000)) == 0
        assert throttle_ms(metadata(client)) == 0
