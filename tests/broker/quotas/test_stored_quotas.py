"""Quotas in the tree: read at the start, followed, and changed by several brokers at once."""

import asyncio
import json
import logging
import tracemalloc

import pytest
from cluster_member_harness import until

from headrace.broker.quotas.client_quotas import ClientQuotas
from headrace.broker.quotas.entities import CLIENT_KEYS, DEFAULT, Entity
from headrace.broker.quotas.stored_quotas import StoredQuotas
from headrace.coordination.interface import BadVersionError, ConnectionLostError, NodeExistsError, NoNodeError
from headrace.coordination.paths import PERSISTENT_PATHS
from headrace.coordination.tree.host import TreeHost
from headrace.coordination.znodes import EntityConfig
from headrace.protocol.errors import InvalidRequest, UnknownServerError
from headrace.testing import ManualClock
from headrace.testing.expiring_coordination import ExpiringCoordination

PRODUCE = "producer_byte_rate"
ALICE = Entity(user="alice")
SCRAM = "salt=AA==,stored_key=AA==,server_key=AA==,iterations=4096"


async def resolve(host):
    if host != "known.example":
        raise OSError("Name or service not known")
    return "10.1.1.1"


class QuotasHarness:
    """The quotas of one broker."""

    def __init__(self, tree, clock):
        self.coordination = ExpiringCoordination(tree, call_soon=asyncio.get_running_loop().call_soon)
        self.quotas = ClientQuotas()
        self.stored = StoredQuotas(self.coordination, clock, self.quotas, resolve=resolve)
        self.is_started = False

    async def start(self):
        await self.stored.load()
        self.stored.start()
        self.is_started = True
        return self

    async def change(self, entity, changes):
        errors = await self.stored.change({entity: changes})
        if errors:
            raise errors[entity]

    async def put(self, path, content):
        data = content if isinstance(content, bytes) else EntityConfig(content).to_json()
        try:
            await self.coordination.create(path, data, make_parents=True)
        except NodeExistsError:
            await self.coordination.set(path, data)

    async def announce(self, content):
        await self.coordination.create("/config/changes/config_change_", content, sequence=True)

    async def json_of(self, path):
        return json.loads((await self.coordination.get(path))[0])


@pytest.fixture
async def brokers():
    clock = ManualClock()
    tree = TreeHost(clock)
    made = [QuotasHarness(tree, clock) for _ in range(3)]
    for path in PERSISTENT_PATHS:
        await made[0].coordination.create(path)
    yield made
    for each in made:
        if each.is_started:
            await each.stored.stop()


ENTITIES = [
    ALICE,
    Entity(user=DEFAULT),
    Entity(user="CN=a,O=b c"),
    Entity(user="alice", client_id="app"),
    Entity(user="bob", client_id=DEFAULT),
    Entity(user=DEFAULT, client_id="app"),
    Entity(user=DEFAULT, client_id=DEFAULT),
    Entity(client_id="app"),
    Entity(client_id=DEFAULT),
]


async def test_a_change_gets_to_all_brokers(brokers):
    here, there, _ = [await each.start() for each in brokers]
    for number, entity in enumerate(ENTITIES):
        await here.change(entity, {PRODUCE: 1000.0 + number})
        assert here.quotas.of(entity) == {PRODUCE: 1000.0 + number}
    await until(lambda: len(there.quotas) == len(ENTITIES))
    assert dict(there.quotas.items()) == dict(here.quotas.items())
    await there.change(ALICE, {PRODUCE: None})
    await until(lambda: not here.quotas.of(ALICE))
    assert len(here.quotas) == len(ENTITIES) - 1


async def test_a_broker_that_starts_has_all_quotas(brokers):
    here, later, _ = brokers
    await here.start()
    for entity in ENTITIES:
        await here.change(entity, {PRODUCE: 5.0, "request_percentage": 12.5})
    await here.change(Entity(ip="known.example"), {"connection_creation_rate": 3.0})
    await later.start()
    assert dict(later.quotas.items()) == dict(here.quotas.items())
    assert later.quotas.ip_limit("10.1.1.1") == 3.0


async def test_more_entities_than_are_read_at_once(brokers):
    here, later, _ = brokers
    for number in range(250):
        await here.put(f"/config/users/u{number}", {PRODUCE: "1"})
        await here.put(f"/config/users/u{number}/clients/c", {PRODUCE: "2"})
    await later.start()
    assert len(later.quotas) == 500


async def test_quotas_are_stored_and_announced_as_kafka_does(brokers):
    here, *_ = brokers
    await here.start()
    await here.change(Entity("alice", DEFAULT), {PRODUCE: 1024.0, "request_percentage": 50.0})
    config = {"producer_byte_rate": "1024", "request_percentage": "50.0"}
    assert await here.json_of("/config/users/alice/clients/<default>") == {"version": 1, "config": config}
    (name,) = await here.coordination.children("/config/changes")
    assert await here.json_of(f"/config/changes/{name}") == {
        "version": 2,
        "entity_path": "users/alice/clients/<default>",
    }


async def test_credentials_in_the_same_znode_stay(brokers):
    here, *_ = brokers
    await here.start()
    await here.put("/config/users/alice", {"SCRAM-SHA-256": SCRAM})
    await here.change(ALICE, {PRODUCE: 10.0, "SCRAM-SHA-256": None})
    assert (await here.json_of("/config/users/alice"))["config"] == {"SCRAM-SHA-256": SCRAM, PRODUCE: "10"}
    assert here.quotas.of(ALICE) == {PRODUCE: 10.0}
    await here.change(ALICE, {PRODUCE: None})
    assert (await here.json_of("/config/users/alice"))["config"] == {"SCRAM-SHA-256": SCRAM}


async def test_nothing_is_written_if_nothing_changes(brokers):
    here, *_ = brokers
    await here.start()
    await here.change(ALICE, {PRODUCE: None})
    assert await here.coordination.exists("/config/users/alice") is None
    await here.change(ALICE, {PRODUCE: 1.0})
    await here.change(ALICE, {PRODUCE: 1.0})
    assert len(await here.coordination.children("/config/changes")) == 1


async def test_concurrent_changes_of_one_entity_lose_nothing(brokers):
    started = [await each.start() for each in brokers]
    keys = [PRODUCE, "consumer_byte_rate", "request_percentage"]
    await asyncio.gather(*(each.change(ALICE, {key: 7.0}) for each, key in zip(started, keys, strict=True)))
    for each in started:
        await until(lambda each=each: each.quotas.of(ALICE) == dict.fromkeys(keys, 7.0))


@pytest.mark.parametrize("loss", [ConnectionLostError(), BadVersionError(), NoNodeError(), NodeExistsError()])
async def test_a_change_whose_answer_is_lost_is_made_again(brokers, monkeypatch, loss):
    here, *_ = brokers
    await here.start()
    multi, calls = here.coordination.multi, []

    async def lost_once(operations):
        calls.append(operations)
        result = await multi(operations) if isinstance(loss, ConnectionLostError) or len(calls) > 1 else None
        if len(calls) == 1:
            raise loss
        return result

    monkeypatch.setattr(here.coordination, "multi", lost_once)
    await here.change(ALICE, {PRODUCE: 3.0})
    assert here.quotas.of(ALICE) == {PRODUCE: 3.0}


# -- what cannot be read


@pytest.mark.parametrize("content", [b"{", b'{"version":1,"config":{"producer_byte_rate":"-1"}}'])
async def test_quotas_that_become_unreadable_stay_in_force(brokers, caplog, content):
    here, *_ = brokers
    await here.start()
    await here.change(ALICE, {PRODUCE: 3.0})
    await here.put("/config/users/alice", content)
    await here.announce(b'{"version":2,"entity_path":"users/alice"}')
    with caplog.at_level(logging.ERROR):
        await until(lambda: any("stay as they are" in line for line in caplog.messages))
    assert here.quotas.of(ALICE) == {PRODUCE: 3.0}
    with pytest.raises(InvalidRequest) if content == b"{" else pytest.raises(AssertionError):
        await here.change(ALICE, {PRODUCE: 4.0})
        raise AssertionError("a readable znode can be changed")


async def test_a_start_with_an_unreadable_znode_reads_the_others(brokers, caplog):
    here, *_ = brokers
    await here.put("/config/users/alice", {PRODUCE: "many", "SCRAM-SHA-256": SCRAM})
    await here.put("/config/users/bob", {PRODUCE: "5"})
    await here.start()
    assert dict(here.quotas.items()) == {Entity(user="bob"): {PRODUCE: 5.0}}
    assert "AA==" not in caplog.text


async def test_a_notification_that_says_nothing_makes_a_broker_read_everything(brokers):
    here, *_ = brokers
    await here.start()
    await here.put("/config/clients/app", {PRODUCE: "5"})
    await here.announce(b"nothing")
    await until(lambda: len(here.quotas) == 1)


async def test_a_broker_reads_everything_in_a_new_session(brokers):
    here, there, _ = [await each.start() for each in brokers]
    await here.change(ALICE, {PRODUCE: 3.0})
    await until(lambda: len(there.quotas) == 1)
    there.coordination.lose_session()
    await here.change(ALICE, {PRODUCE: None})
    await here.change(Entity(user="bob"), {PRODUCE: 4.0})
    there.coordination.start_session()
    await until(lambda: dict(there.quotas.items()) == {Entity(user="bob"): {PRODUCE: 4.0}})


async def test_quotas_stay_in_force_while_the_tree_does_not_answer(brokers, monkeypatch):
    here, *_ = brokers
    await here.start()
    await here.change(ALICE, {PRODUCE: 3.0})

    async def unanswered(*_, **__):
        raise ConnectionLostError

    monkeypatch.setattr(here.coordination, "get", unanswered)
    with pytest.raises(UnknownServerError):
        await here.change(ALICE, {PRODUCE: 4.0})
    assert here.quotas.limit(PRODUCE, "alice", "app").value == 3.0


# -- checks


async def test_hosts_must_have_an_address(brokers):
    here, *_ = brokers
    await here.stored.check(Entity(ip="known.example"), {"connection_creation_rate": 1.0})
    await here.stored.check(Entity(ip="::1"), {"connection_creation_rate": 1.0})
    with pytest.raises(InvalidRequest, match=r"unknown\.example is not a valid IP or resolvable host"):
        await here.stored.check(Entity(ip="unknown.example"), {"connection_creation_rate": 1.0})


async def test_removing_what_cannot_be_there_is_no_error(brokers):
    here, *_ = brokers
    await here.stored.check(ALICE, {"unknown": None})
    with pytest.raises(InvalidRequest):
        await here.stored.check(ALICE, {"unknown": 1.0})


async def test_a_host_without_an_address_keeps_its_limit_and_is_tried_again(brokers, monkeypatch):
    here, *_ = brokers
    monkeypatch.setattr("headrace.broker.quotas.stored_quotas._RESOLVE_AGAIN_AFTER_S", 0.01)
    await here.put("/config/ips/late.example", {"connection_creation_rate": "2"})
    await here.start()
    assert not here.quotas.any_ip

    async def resolve_late(_):
        return "10.2.2.2"

    here.stored._resolve = resolve_late
    await until(lambda: here.quotas.ip_limit("10.2.2.2") == 2.0)


async def test_ten_thousand_users_with_their_znodes_need_less_than_20_mb(brokers):
    """A broker without a cluster has the tree in its process."""
    here, *_ = brokers
    await here.stored.load()
    tracemalloc.start()
    try:
        for number in range(10_000):
            limits = dict.fromkeys(CLIENT_KEYS, 1000.0 + number)
            await here.stored.change({Entity(f"user-with-a-name-{number}"): limits})
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(here.quotas) == 10_000
    assert held_bytes < 20_000_000
