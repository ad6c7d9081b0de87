"""Records without a key fill one batch, whatever else they come with."""

import pytest

from headrace import Broker, Producer


@pytest.fixture(scope="module")
def broker():
    with Broker() as broker:
        yield broker


@pytest.mark.parametrize(
    "options",
    [{"on_delivery": lambda *_: None}, {"headers": [("h", b"1")]}, {"timestamp_ms": 5}, {}],
    ids=["callback", "headers", "timestamp", "plain"],
)
def test_records_of_all_kinds_share_a_batch(broker, options):
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
        deliveries = [producer.send("shared", b"v", **(options if at % 2 else {})) for at in range(100)]
        assert len({id(delivery._batch) for delivery in deliveries}) == 1
        producer.flush()
        assert sorted(delivery.result().offset for delivery in deliveries)[-1] >= 99
