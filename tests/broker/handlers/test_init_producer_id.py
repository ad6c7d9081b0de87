"""InitProducerId: ids for idempotent producers."""

import pytest
from brokerbed import OTHER_KAFKA, Client, all_versions

from headrace import Broker
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode


def ask(client, version=4, **fields):
    return client.ask(Api.INIT_PRODUCER_ID, version, **{"transaction_timeout": 60_000, **fields})


@pytest.mark.parametrize("version", all_versions(Api.INIT_PRODUCER_ID))
def test_every_version(client, version):
    if OTHER_KAFKA and version == 6:
        pytest.skip("not stable in Apache Kafka 4.3")
    first, second = ask(client, version), ask(client, version)
    assert (first.error_code, first.producer_epoch) == (0, 0)
    assert second.producer_id > first.producer_id >= 0


def test_an_empty_transactional_id(client):
    answer = ask(client, transactional_id="")
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.invalid_request, -1, -1)


def test_who_knows_its_id_gets_one_that_serves(client):
    """KIP-360: Kafka raises the epoch, we give another id; both begin a new sequence."""
    first = ask(client)
    second = ask(client, producer_id=first.producer_id, producer_epoch=first.producer_epoch)
    assert second.error_code == 0
    assert (second.producer_id, second.producer_epoch) != (first.producer_id, first.producer_epoch)


def test_ids_never_repeat_across_restarts(tmp_path, ours):
    seen = []
    for _ in range(3):
        with Broker(data=tmp_path) as broker, Client(broker.bootstrap_servers) as client:
            seen += [ask(client).producer_id for _ in range(3)]
    assert len(set(seen)) == 9
