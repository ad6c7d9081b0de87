"""The rate to which a broker holds clients that always want more, on a clock that the tests move."""

from bisect import bisect_right

import pytest
from broker_harness import batch, fetch_request
from quota_harness import manual_broker, throttle_ms

from headrace.protocol.api import Api

QUOTA_BYTES = 200_000
SPAN_MS = 22_000
PACED_MS = 15_000
END_MS = PACED_MS + 3 * SPAN_MS
HANDLING_MS = 5


class Bytes:
    """When how many bytes had moved."""

    def __init__(self):
        self._moments, self._totals = [0], [0]

    def add(self, now_ms, size_bytes):
        self._moments.append(now_ms)
        self._totals.append(self.total + size_bytes)

    @property
    def total(self):
        return self._totals[-1]

    def until(self, moment_ms):
        return self._totals[bisect_right(self._moments, moment_ms) - 1]

    def rates(self, begin_ms):
        """The rates over all spans after this moment."""
        moments = range(begin_ms, END_MS - SPAN_MS, 500)
        return [(self.until(at_ms + SPAN_MS) - self.until(at_ms)) * 1000 / SPAN_MS for at_ms in moments]


def fetch_once(client, topic):
    answer = client.ask(Api.FETCH, 12, **fetch_request((topic, 0, 0), partition_max_bytes=10_000))
    records = answer.responses[0].partitions[0].records if answer.responses else b""
    return len(records or b""), throttle_ms(answer)


def produce_once(client, topic):
    records = batch(value=b"v" * 19_900)
    data = {"name": topic, "topic_id": None, "partition_data": [{"index": 0, "records": records}]}
    return len(records), throttle_ms(client.ask(Api.PRODUCE, 9, acks=-1, timeout=10_000, topic_data=[data]))


def moved_by(manual, move, *, paced_ms):
    """What a client moves that sends its next request as soon as it may, but is not faster than its quota at first."""
    moved, now_ms = Bytes(), 0
    with manual.client() as client:
        topic = client.create_topic()
        produce_once(client, topic)
        manual.set_quota(producer_byte_rate=QUOTA_BYTES, consumer_byte_rate=QUOTA_BYTES)
        while now_ms < END_MS:
            size_bytes, delay_ms = move(client, topic)
            moved.add(now_ms, size_bytes)
            delay_ms += HANDLING_MS
            if now_ms < paced_ms:
                delay_ms = max(delay_ms, moved.total * 1000 // QUOTA_BYTES - now_ms)
            manual.wait(delay_ms)
            now_ms += delay_ms
    return moved


@pytest.mark.parametrize("move", [fetch_once, produce_once])
def test_a_client_is_held_to_its_quota_over_any_span(move):
    with manual_broker() as manual:
        rates = moved_by(manual, move, paced_ms=PACED_MS).rates(PACED_MS)
    assert min(rates) > 0.95 * QUOTA_BYTES
    assert max(rates) < 1.05 * QUOTA_BYTES


@pytest.mark.parametrize("move", [fetch_once, produce_once])
def test_a_client_that_begins_with_a_burst_has_its_quota_on_average(move):
    """All that the windows allow comes at once, and comes again when it counts no more. So a span has one burst or two:
    its rate depends on the moment at which it begins. The average over all spans does not."""
    with manual_broker() as manual:
        rates = moved_by(manual, move, paced_ms=0).rates(SPAN_MS // 2)
    assert min(rates) < 0.8 * QUOTA_BYTES
    assert max(rates) < 1.15 * QUOTA_BYTES
    assert 0.9 * QUOTA_BYTES < sum(rates) / len(rates) < 1.05 * QUOTA_BYTES
