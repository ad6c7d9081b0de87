"""The rules in the tree: read at the start, followed, and changed by several brokers at once."""

import asyncio
import logging

import pytest
from cluster_member_harness import fail_first_read, until

from headrace.broker.authorization.acl_authorizer import AclAuthorizer
from headrace.broker.authorization.stored_rules import StoredRules
from headrace.coordination.interface import ConnectionLostError, CoordinationError
from headrace.coordination.tree.host import TreeHost
from headrace.protocol.errors import InvalidRequest, UnknownServerError
from headrace.security.acls import AclFilter, AclOperation, PatternType, Permission, ResourceType
from headrace.security.acls.bindings import AclEntry, AclPattern
from headrace.security.acls.rule_index import RuleIndex
from headrace.security.acls.znodes import MalformedRulesError, decode_rules, encode_rules
from headrace.testing import ManualClock
from headrace.testing.expiring_coordination import ExpiringCoordination

READ = AclOperation.READ
TOPIC = AclPattern(ResourceType.TOPIC, "t")
PREFIX = AclPattern(ResourceType.TOPIC, "t", PatternType.PREFIXED)


def user(name, operation=READ, permission=Permission.ALLOW):
    return AclEntry(f"User:{name}", "*", operation, permission)


class AuthorizerHarness:
    """The authorizer of one broker."""

    def __init__(self, tree, clock):
        self.coordination = ExpiringCoordination(tree, call_soon=asyncio.get_running_loop().call_soon)
        self.index = RuleIndex()
        self.authorizer = AclAuthorizer(self.index)
        self.stored = self.authorizer.stored = StoredRules(
            self.coordination, clock, self.index, on_changed=self.authorizer.forget_decisions
        )
        self.is_started = False

    async def start(self):
        await self.stored.load()
        self.stored.start()
        self.is_started = True
        return self

    def may(self, name):
        return self.index.decide(f"User:{name}", "h", READ, ResourceType.TOPIC, "t").is_allowed


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def brokers(clock):
    tree = TreeHost(clock)
    made = [AuthorizerHarness(tree, clock) for _ in range(3)]
    yield made
    for each in made:
        if each.is_started:
            await each.stored.stop()


async def test_a_change_gets_to_all_brokers(brokers):
    here, there, other = [await each.start() for each in brokers]
    await here.authorizer.add_rules(TOPIC, [user("a")])
    assert here.may("a")
    await until(lambda: there.may("a") and other.may("a"))
    await other.authorizer.add_rules(PREFIX, [user("b")])
    await until(lambda: here.may("b") and there.may("b"))
    await there.authorizer.remove_rules(TOPIC, [AclFilter()])
    await until(lambda: not here.may("a") and not other.may("a"))
    assert here.may("b")


async def test_rules_for_names_with_a_slash_get_to_all_brokers(brokers):
    here, there, late = brokers
    await here.start()
    await there.start()
    all_of_team = AclPattern(ResourceType.GROUP, "team/", PatternType.PREFIXED)
    secret = AclPattern(ResourceType.GROUP, "team/secret")

    def may(broker, name):
        return broker.index.decide("User:a", "h", READ, ResourceType.GROUP, name).is_allowed

    await here.authorizer.add_rules(all_of_team, [user("a")])
    await there.authorizer.add_rules(secret, [user("a", permission=Permission.DENY)])
    await until(lambda: not may(here, "team/secret") and may(there, "team/app"))
    assert may(here, "team/app")
    assert not may(there, "team/secret")
    await late.start()
    assert may(late, "team/app")
    assert not may(late, "team/secret")
    assert await here.coordination.children("/headrace/acls/literal") == ["Group:team%2Fsecret"]
    await late.authorizer.remove_rules(secret, [AclFilter()])
    await until(lambda: may(here, "team/secret") and may(there, "team/secret"))
    assert await here.coordination.children("/headrace/acls/literal") == []
    assert await here.coordination.children("/kafka-acl-changes") == []


async def test_a_strange_znode_among_them_stops_the_start(brokers):
    here, *_ = brokers
    await here.coordination.create("/headrace/acls/literal/Group:plain", encode_rules([user("a")]), make_parents=True)
    with pytest.raises(MalformedRulesError, match="is not the place of the rules of"):
        await here.stored.load()


async def test_rules_are_stored_as_kafka_stores_them(brokers):
    here, *_ = brokers
    await here.start()
    await here.authorizer.add_rules(TOPIC, [user("a")])
    content, _ = await here.coordination.get("/kafka-acl/Topic/t")
    assert content == (
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Read","host":"*"}]}'
    )
    assert await here.coordination.children("/kafka-acl-changes") == ["acl_changes_0000000000"]
    assert (await here.coordination.get("/kafka-acl-changes/acl_changes_0000000000"))[0] == b"TOPIC:t"
    await here.authorizer.remove_rules(TOPIC, [AclFilter()])
    assert await here.coordination.exists("/kafka-acl/Topic/t") is None


async def test_rules_that_kafka_has_written_are_in_force_at_the_start_and_later(brokers):
    kafka, here, _ = brokers
    client = kafka.coordination
    for path in ("/kafka-acl/Topic", "/kafka-acl/Queue", "/kafka-acl-extended/prefixed/Group"):
        await client.create(path, make_parents=True)
    await client.create("/kafka-acl/Topic/t", encode_rules([user("a")]))
    await here.start()
    assert here.may("a")
    await client.set("/kafka-acl/Topic/t", encode_rules([user("b")]))
    await client.create("/kafka-acl-changes/acl_changes_", b"Topic:t", sequence=True)
    await until(lambda: here.may("b"))
    assert not here.may("a")


async def test_removing_one_rule_keeps_the_others(brokers):
    """CVE-2024-27309: after one ACL of a resource was removed, the others were no longer in force."""
    here, there, _ = [await each.start() for each in brokers]
    deny = user("a", permission=Permission.DENY)
    await here.authorizer.add_rules(TOPIC, [user("a"), user("b"), deny])
    removed = await there.authorizer.remove_rules(TOPIC, [AclFilter(principal="User:b")])
    assert removed == {user("b")}
    await until(lambda: not here.may("b"))
    assert here.index.entries(TOPIC) == there.index.entries(TOPIC) == {user("a"), deny}
    assert not here.may("a")
    await here.authorizer.remove_rules(TOPIC, [AclFilter(permission=Permission.DENY)])
    assert here.may("a")


async def test_concurrent_changes_lose_nothing(brokers):
    started = [await each.start() for each in brokers]
    await asyncio.gather(
        *(each.authorizer.add_rules(TOPIC, [user(f"{n}-{i}")]) for n, each in enumerate(started) for i in range(20))
    )
    expected = {user(f"{n}-{i}") for n in range(3) for i in range(20)}
    assert decode_rules((await started[0].coordination.get("/kafka-acl/Topic/t"))[0]) == expected
    for each in started:
        await each.authorizer.catch_up()
        assert each.index.entries(TOPIC) == expected


async def test_a_change_that_another_broker_overtakes_starts_again(brokers, monkeypatch):
    here, there, _ = [await each.start() for each in brokers]
    multi, overtaken = here.coordination.multi, []

    async def late(operations):
        if not overtaken:
            overtaken.append(operations)
            await there.authorizer.add_rules(TOPIC, [user("b")])
        return await multi(operations)

    monkeypatch.setattr(here.coordination, "multi", late)
    await here.authorizer.add_rules(TOPIC, [user("a")])
    assert here.index.entries(TOPIC) == {user("a"), user("b")}


async def test_a_lost_answer_starts_the_change_again(brokers, monkeypatch):
    here, there, _ = [await each.start() for each in brokers]
    multi, lost = here.coordination.multi, []

    async def lose_answer(operations):
        result = await multi(operations)
        if not lost:
            lost.append(operations)
            raise ConnectionLostError
        return result

    monkeypatch.setattr(here.coordination, "multi", lose_answer)
    await here.authorizer.add_rules(TOPIC, [user("a")])
    assert lost
    await until(lambda: there.may("a"))
    lost.clear()
    assert await here.authorizer.remove_rules(TOPIC, [AclFilter()]) == {user("a")}
    assert lost


async def test_a_broker_reads_everything_again_in_a_new_session(brokers):
    here, there, _ = [await each.start() for each in brokers]
    await here.authorizer.add_rules(TOPIC, [user("a")])
    await until(lambda: there.may("a"))
    there.coordination.expire()
    await here.authorizer.remove_rules(TOPIC, [AclFilter()])
    await here.authorizer.add_rules(PREFIX, [user("b")])
    await until(lambda: there.may("b") and not there.may("a"))


async def test_a_session_that_ends_between_the_first_read_and_the_start_is_noticed(brokers):
    here, there, _ = brokers
    await here.start()
    await here.authorizer.add_rules(TOPIC, [user("a"), user("b")])
    await there.stored.load()
    there.coordination.lose_session()
    await here.authorizer.remove_rules(TOPIC, [AclFilter(principal="User:a")])
    there.coordination.start_session()
    await asyncio.sleep(0)
    there.stored.start()
    there.is_started = True
    await until(lambda: not there.may("a"))
    assert there.may("b")


async def test_a_load_that_fails_leaves_no_listener_of_the_session(brokers):
    here = brokers[0]
    here.coordination.lose_session()
    with pytest.raises(CoordinationError):
        await here.stored.load()
    await here.stored._follower.stop()
    assert here.coordination._listeners == []


async def test_a_request_that_cannot_read_everything_leaves_it_to_the_broker(brokers, monkeypatch):
    """A rule that was removed meanwhile must not stay in force, because its notification was passed over."""
    here, there, _ = [await each.start() for each in brokers]
    await here.authorizer.add_rules(TOPIC, [user("a"), user("b")])
    await until(lambda: there.may("a"))
    there.coordination.lose_session()
    await here.authorizer.remove_rules(TOPIC, [AclFilter(principal="User:a")])
    fail_first_read(monkeypatch, there.coordination)
    monkeypatch.setattr(there.coordination, "notify", there.stored._follower._session_changed)  # at once
    there.coordination.start_session()
    with pytest.raises(ConnectionLostError):
        await there.authorizer.catch_up()
    await until(lambda: not there.may("a"))
    assert there.may("b")


async def test_rules_that_cannot_be_read_stop_the_start(brokers):
    here, there, _ = brokers
    await here.start()
    await here.coordination.create("/kafka-acl/Topic/t", b'{"version":1,"acls":[{"principal":"User:a"}]}')
    with pytest.raises(MalformedRulesError, match="the ACLs in /kafka-acl/Topic/t cannot be read"):
        await there.stored.load()


async def test_rules_that_cannot_be_read_later_deny_everything(brokers, caplog):
    here, there, _ = [await each.start() for each in brokers]
    await here.authorizer.add_rules(TOPIC, [user("a")])
    await until(lambda: there.may("a"))
    await here.coordination.set("/kafka-acl/Topic/t", b"nonsense")
    await here.coordination.create("/kafka-acl-changes/acl_changes_", b"Topic:t", sequence=True)
    await until(lambda: not there.may("a") and not here.may("a"))
    assert "the ACLs in /kafka-acl/Topic/t cannot be read, so everything is denied there" in caplog.text
    with pytest.raises(InvalidRequest, match="must be repaired first"):
        await here.authorizer.add_rules(TOPIC, [user("b")])


async def test_a_notification_that_names_nothing_lets_a_broker_read_all(brokers, caplog):
    here, there, _ = [await each.start() for each in brokers]
    await here.coordination.create("/kafka-acl/Topic/t", encode_rules([user("a")]))
    with caplog.at_level(logging.ERROR):
        await here.coordination.create("/kafka-acl-changes/acl_changes_", b"what?", sequence=True)
        await until(lambda: there.may("a"))
    assert "names no resource" in caplog.text


async def test_old_notifications_are_deleted(brokers, clock):
    here, *_ = brokers
    await here.start()
    await here.authorizer.add_rules(TOPIC, [user("a")])
    clock.advance(16 * 60_000)
    await here.authorizer.add_rules(TOPIC, [user("b")])
    await here.authorizer.catch_up()
    assert await here.coordination.children("/kafka-acl-changes") == ["acl_changes_0000000001"]


async def test_more_rules_than_a_znode_can_hold_are_refused(brokers):
    here, *_ = brokers
    await here.start()
    many = [user(f"somebody-with-a-long-name-{n}") for n in range(12_000)]
    with pytest.raises(InvalidRequest, match="12000 ACLs of one resource are more than ZooKeeper can store"):
        await here.authorizer.add_rules(TOPIC, many)
    assert here.index.entries(TOPIC) == frozenset()


async def test_a_tree_that_does_not_answer(brokers):
    here, *_ = brokers
    await here.start()
    await here.coordination.close()
    with pytest.raises(UnknownServerError, match="cannot be stored now"):
        await here.authorizer.add_rules(TOPIC, [user("a")])
