"""The controller's requests on their way: order, what is tried again, and when a queue ends."""

import asyncio
from uuid import UUID

import pytest
from peer_harness import CUT, HANG, LISTENER, Peer, leaders, metadata, stop

from headrace.broker import control_messages
from headrace.broker.cluster.controller_channel import ControllerChannel
from headrace.controller.decisions.broker_requests import LeaderAndIsrResponse, StopReplicaResponse
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode

IDS = {"t": UUID(int=1)}


@pytest.fixture
async def channel():
    channel = ControllerChannel(listener=LISTENER, client_id="controller-1", timeout_ms=5_000)
    channel.answers, channel.heard = [], asyncio.Event()

    def heard(request, answer):
        channel.answers.append((request, answer))
        channel.heard.set()

    channel.on_response = heard
    yield channel
    channel.close()
    async with asyncio.timeout(10):
        await channel.wait_closed()


async def answered(channel, count):
    async with asyncio.timeout(10):
        while len(channel.answers) < count:
            channel.heard.clear()
            await channel.heard.wait()


async def test_requests_arrive_in_order_and_answers_reach_the_controller(channel, peer):
    channel.set_brokers([peer.live(2, 50)])
    leading, stopping = leaders(2, 50, IDS), stop(2, 50, "t", 0, 1)
    for request in (leading, metadata(2, 50, IDS), stopping):
        channel.send(request)
    assert channel.size == 3
    await answered(channel, 2)
    assert [api for api, _ in peer.asked] == [Api.LEADER_AND_ISR, Api.UPDATE_METADATA, Api.STOP_REPLICA]
    assert channel.answers == [
        (leading, LeaderAndIsrResponse(ErrorCode.none, {("t", 0): ErrorCode.none})),
        (stopping, StopReplicaResponse(ErrorCode.none, {("t", 0): ErrorCode.none, ("t", 1): ErrorCode.none})),
    ]
    assert peer.connections == 1
    await asyncio.sleep(0)  # the queue's own turn
    assert (channel.size, channel.meters[2].sent) == (0, 3)


async def test_errors_reach_the_controller_too(channel, peer):
    peer.script = [{"error_code": ErrorCode.stale_controller_epoch, "topics": ()}]
    channel.set_brokers([peer.live(2, 50)])
    channel.send(leaders(2, 50, IDS))
    await answered(channel, 1)
    assert channel.answers[0][1] == LeaderAndIsrResponse(ErrorCode.stale_controller_epoch, {})


async def test_a_request_goes_out_again_when_its_connection_is_cut(channel, peer):
    peer.script = [CUT]
    channel.set_brokers([peer.live(2, 50)])
    channel.send(leaders(2, 50, IDS))
    channel.send(stop(2, 50, "t", 0))
    await answered(channel, 2)
    assert [api for api, _ in peer.asked] == [Api.LEADER_AND_ISR, Api.LEADER_AND_ISR, Api.STOP_REPLICA]
    assert peer.connections == 2


async def test_a_request_goes_out_again_when_its_time_is_up(channel, peer):
    channel.timeout_ms = 50
    peer.script = [HANG]
    channel.set_brokers([peer.live(2, 50)])
    channel.send(leaders(2, 50, IDS))
    await answered(channel, 1)
    assert len(peer.asked) == 2


async def test_a_broker_that_is_not_there_yet_is_told_when_it_comes(channel, peer):
    later = await Peer().listen()
    port, at = later.port, later.live(2, 50)
    await later.close()
    channel.set_brokers([at, peer.live(3, 60)])
    channel.send(leaders(2, 50, IDS))
    channel.send(leaders(3, 60, IDS))
    await answered(channel, 1)  # by the other one, which does not wait for it
    await later.listen(port)
    await answered(channel, 2)
    assert [request.broker_id for request, _ in channel.answers] == [3, 2]
    await later.close()


async def test_a_broker_that_came_back_does_not_hear_what_the_one_before_was_to_hear(channel, peer):
    peer.script = [HANG]
    channel.set_brokers([peer.live(2, 50)])
    channel.send(leaders(2, 50, IDS))
    channel.send(stop(2, 50, "t", 0))
    await peer.until(lambda: peer.asked)
    channel.set_brokers([peer.live(2, 51)])
    channel.send(stop(2, 50, "t", 9))  # decided before, and sent too late
    channel.send(stop(2, 51, "t", 1))
    await answered(channel, 1)
    assert [request.broker_epoch for request, _ in channel.answers] == [51]
    assert [api for api, _ in peer.asked] == [Api.LEADER_AND_ISR, Api.STOP_REPLICA]


async def test_a_broker_that_moved_hears_what_it_has_not_heard_yet(channel, peer):
    peer.script = [HANG]
    elsewhere = await Peer().listen()
    channel.set_brokers([peer.live(2, 50)])
    channel.send(leaders(2, 50, IDS))
    await peer.until(lambda: peer.asked)
    channel.set_brokers([elsewhere.live(2, 50)])
    await answered(channel, 1)
    assert [api for api, _ in elsewhere.asked] == [Api.LEADER_AND_ISR]
    await elsewhere.close()


async def test_a_broker_that_stays_keeps_its_queue(channel, peer):
    channel.set_brokers([peer.live(2, 50)])
    channel.send(leaders(2, 50, IDS))
    channel.set_brokers([peer.live(2, 50), peer.live(3, 60)])
    await answered(channel, 1)
    assert channel.answers[0][0].broker_id == 2


async def test_what_is_sent_to_a_broker_that_is_gone_is_dropped(channel, peer):
    channel.set_brokers([peer.live(2, 50)])
    channel.set_brokers([])
    channel.send(leaders(2, 50, IDS))
    assert channel.size == 0


async def test_close_ends_all_connections_and_the_channel_can_be_used_again(channel, peer):
    peer.script = [HANG]
    channel.set_brokers([peer.live(2, 50)])
    channel.send(leaders(2, 50, IDS))
    await peer.until(lambda: peer.asked)
    channel.close()
    await channel.wait_closed()
    await peer.until(lambda: not peer._writers)
    channel.set_brokers([peer.live(2, 50)])
    channel.send(stop(2, 50, "t", 0))
    await answered(channel, 1)
    assert isinstance(channel.answers[0][1], StopReplicaResponse)


async def test_what_all_brokers_are_told_is_encoded_once(channel, peer, monkeypatch):
    encoded = []
    encode = control_messages._encode
    monkeypatch.setattr(
        control_messages, "_encode", lambda _v, name, items: encoded.append(name) or encode(_v, name, items)
    )
    brokers = tuple(peer.live(broker_id, 50) for broker_id in (2, 3, 4))
    channel.set_brokers(brokers)
    first = metadata(2, 50, IDS, live_brokers=brokers)
    for broker_id in (2, 3, 4):
        channel.send(first._replace(broker_id=broker_id))
        channel.send(stop(broker_id, 50, "t", 0))
    await answered(channel, 3)
    assert sorted(encoded) == ["live_brokers", "topic_states"]
    told = [body for api, body in peer.asked if api is Api.UPDATE_METADATA]
    assert len(told) == 3
    assert all(len(body.live_brokers) == 3 and body.topic_states == told[0].topic_states for body in told)


async def test_a_request_that_cannot_be_written_does_not_hold_up_the_others(channel, peer, caplog):
    broken = leaders(2, 50, IDS)
    broken = broken._replace(controller_epoch="seven")
    channel.set_brokers([peer.live(2, 50)])
    channel.send(broken)
    channel.send(stop(2, 50, "t", 0))
    await answered(channel, 1)
    assert "a request to broker 2 is dropped" in caplog.text
