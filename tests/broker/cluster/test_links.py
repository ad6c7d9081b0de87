"""Connections between brokers: one per purpose, opened again when they have ended or the broker has moved."""

import asyncio

import pytest
from peer_harness import CUT, HANG, Peer

from headrace.broker.cluster.links import Links, NoAnswer
from headrace.client.errors import BrokerUnreachable, ClientClosed, KafkaTimeout
from headrace.protocol.api import Api
from headrace.runtime.clock import SystemClock

BODY = {"broker_id": 1, "broker_epoch": 5}


@pytest.fixture
async def links(peer):
    links = Links(lambda broker_id: links.addresses.get(broker_id), SystemClock(), client_id="broker-1")
    links.addresses = {2: ("127.0.0.1", peer.port)}
    yield links
    await links.close()


def shutdown(links, **options):
    return links.ask(2, Api.CONTROLLED_SHUTDOWN, BODY, **{"timeout_ms": 5_000, **options})


async def test_an_answer(links, peer):
    answer = await shutdown(links)
    assert (answer.error_code, answer.remaining_partitions) == (0, ())
    await shutdown(links)
    assert peer.connections == 1
    assert [(api, body.broker_epoch) for api, body in peer.asked] == [(Api.CONTROLLED_SHUTDOWN, 5)] * 2


async def test_every_purpose_has_its_own_connection(links, peer):
    one, other = await asyncio.gather(links.connect(2, "fetcher-0"), links.connect(2, "fetcher-1"))
    assert one is not other
    assert await links.connect(2, "fetcher-0") is one
    assert peer.connections == 2
    await links.drop(2, "fetcher-0")
    assert one.is_closed
    assert await links.connect(2, "fetcher-0") is not one


async def test_what_was_cut_is_not_sent_again_but_the_next_is_answered(links, peer):
    peer.script = [CUT]
    with pytest.raises(BrokerUnreachable):
        await shutdown(links)
    await shutdown(links)
    assert len(peer.asked) == 2


async def test_no_answer_in_time(links, peer):
    peer.script = [HANG]
    with pytest.raises(KafkaTimeout):
        await shutdown(links, timeout_ms=50)
    await shutdown(links)


async def test_a_broker_that_is_not_known(links):
    with pytest.raises(NoAnswer, match="address of broker 9 is not known"):
        await links.ask(9, Api.CONTROLLED_SHUTDOWN, BODY, timeout_ms=100)


async def test_a_broker_that_moved(links, peer):
    before = await links.connect(2, "markers")
    elsewhere = await Peer().listen()
    links.addresses[2] = ("127.0.0.1", elsewhere.port)
    after = await links.connect(2, "markers")
    assert before.is_closed
    assert after.port == elsewhere.port
    await links.drop(2, "markers")
    await elsewhere.close()


async def test_nothing_is_asked_after_the_end(links):
    connection = await links.connect(2, "markers")
    await links.close()
    assert connection.is_closed
    with pytest.raises(ClientClosed):
        await shutdown(links)
