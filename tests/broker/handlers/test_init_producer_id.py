"""InitProducerId: ids for idempotent producers, epochs for transactional ones."""

import pytest
from broker_harness import OTHER_KAFKA, Client, all_versions
from transaction_harness import TxnProducer, committed

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


# -- transactional ids ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", all_versions(Api.INIT_PRODUCER_ID))
def test_a_transactional_id_keeps_its_id_and_gets_the_next_epoch(client, version):
    if OTHER_KAFKA and version == 6:
        pytest.skip("not stable in Apache Kafka 4.3")
    producer = TxnProducer(client)
    first, second = producer.start(version), producer.start(version)
    assert (first.error_code, first.producer_epoch) == (0, 0)
    assert (second.producer_id, second.producer_epoch) == (first.producer_id, 1)
    assert producer.state == "Empty"


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_timeouts_that_are_not_allowed(client, timeout_ms):
    assert TxnProducer(client, timeout_ms=timeout_ms).start().error_code == ErrorCode.invalid_transaction_timeout


@pytest.mark.parametrize("version", [9, 12])
def test_a_second_producer_shuts_out_the_first_and_aborts_what_it_left_open(client, topic, version):
    first = TxnProducer(client)
    first.start()
    first.add((topic, 0))
    first.write(topic, b"lost", version=version)
    second = TxnProducer(client, first.name)
    assert second.start().error_code == 0
    assert (second.id, second.epoch) == (first.id, first.epoch + 2)
    assert first.write(topic).error_code == ErrorCode.invalid_producer_epoch
    assert first.add((topic, 0)) == [ErrorCode.producer_fenced]
    assert first.end().error_code == ErrorCode.producer_fenced
    assert first.offsets_of("g").error_code == ErrorCode.producer_fenced
    second.add((topic, 0))
    second.write(topic, b"kept")
    second.end()
    second.described()
    assert committed(client, topic) == [b"kept"]


def test_an_idle_producer_is_shut_out_as_well(client, topic):
    first = TxnProducer(client)
    first.start()
    first.add((topic, 0))
    first.write(topic, b"1")
    first.end()
    TxnProducer(client, first.name).start()
    assert first.write(topic, b"2").error_code == ErrorCode.invalid_producer_epoch
    assert first.write(topic, b"3", version=12).error_code == ErrorCode.invalid_producer_epoch


def test_a_producer_that_starts_anew_after_an_error(client, topic):
    """KIP-360: it says who it is, and gets the next epoch; said again, because the answer was lost, the same one."""
    producer = TxnProducer(client)
    producer.start()
    known = {"producer_id": producer.id, "producer_epoch": producer.epoch}
    assert producer.start(**known).producer_epoch == 1
    assert producer.start(**known).producer_epoch == 1
    assert producer.start(producer_id=producer.id, producer_epoch=1).producer_epoch == 2
    assert producer.start(**known).error_code == ErrorCode.producer_fenced
    assert producer.start(version=3, **known).error_code == ErrorCode.invalid_producer_epoch


def test_an_identity_that_was_never_given(client):
    producer = TxnProducer(client)
    producer.start()
    assert producer.start(producer_id=producer.id, producer_epoch=7).error_code == ErrorCode.producer_fenced
    stranger = {"producer_id": producer.id + 1_000_000, "producer_epoch": 0}
    assert producer.start(**stranger).error_code == ErrorCode.producer_fenced


@pytest.mark.parametrize("known", [{"producer_id": 1}, {"producer_epoch": 1}])
def test_half_an_identity(client, known):
    assert TxnProducer(client).start(**known).error_code == ErrorCode.invalid_request


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        ({"enable2_pc": True}, ErrorCode.transactional_id_authorization_failed),
        ({"keep_prepared_txn": True}, ErrorCode.unsupported_version),
    ],
)
def test_transactions_of_two_phases_are_not_served(client, ours, flags, code):
    assert TxnProducer(client).start(version=6, **flags).error_code == code
