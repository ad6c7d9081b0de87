"""Settings in the tree, and how brokers learn of their changes."""

import asyncio

import pytest
from cluster_member_harness import ClusterMemberHarness, until

from headrace.broker.configs.group_overrides import entity_of
from headrace.coordination.tree.host import TreeHost
from headrace.coordination.znodes import ConfigChange, EntityConfig, MalformedZnodeError
from headrace.protocol.errors import InvalidRequest
from headrace.security.password_encoder import PasswordEncoder
from headrace.security.sasl.scram import new_credential
from headrace.testing import ManualClock

CHANGES = "/config/changes"


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def brokers(clock, tmp_path):
    """Two, each with its ConfigChanges."""
    tree = TreeHost(clock)
    made = []
    for broker_id in (1, 2):
        broker = ClusterMemberHarness(tree, clock, tmp_path / str(broker_id), broker_id=broker_id)
        await broker.registration.identify()
        made.append(broker)
    yield made
    for broker in made:
        await broker.configs.stop()


def has_applied(member, number):
    return member.configs._notifications._applied == f"config_change_{number:010d}"


async def started(*brokers):
    for broker in brokers:
        await broker.configs.load()
        broker.configs.start()


async def test_a_topics_settings_get_round(brokers):
    here, there = brokers
    await started(here, there)
    await here.configs.write("topics", "t", {"retention.ms": "5"})
    assert here.configs.of_topic("t") == {"retention.ms": "5"}
    await until(lambda: there.configs.of_topic("t"))
    assert ("topic_configured", "t", {"retention.ms": "5"}) in there.parts.calls
    await here.configs.write("topics", "t", {})
    await until(lambda: there.configs.of_topic("t") == {})


async def test_settings_of_all_brokers_and_of_one(brokers):
    here, there = brokers
    await started(here, there)
    await here.configs.write("brokers", "<default>", {"message.max.bytes": "77"})
    await until(lambda: there.config.int("message.max.bytes") == 77)
    await here.configs.write("brokers", "1", {"message.max.bytes": "88"})
    assert here.config.int("message.max.bytes") == 88
    await here.configs.write("topics", "last", {"retention.ms": "5"})
    await until(lambda: there.configs.of_topic("last"))
    assert there.config.int("message.max.bytes") == 77


async def test_subscriptions_of_client_metrics_get_round_and_are_read_at_the_start(brokers):
    here, there = brokers
    await started(here)
    await here.configs.write("client-metrics", "a%2Fb", {"metrics": "*"})
    assert here.client_metrics.of("a/b") == {"metrics": "*"}
    await started(there)
    assert there.client_metrics.of("a/b") == {"metrics": "*"}
    await there.configs.write("client-metrics", "a%2Fb", {"metrics": "x", "interval.ms": "500"})
    await until(lambda: here.client_metrics.of("a/b") == {"metrics": "x", "interval.ms": "500"})
    await here.configs.write("client-metrics", "a%2Fb", {})
    await until(lambda: list(there.client_metrics) == [])


async def test_users_get_round_and_are_read_at_the_start(brokers):
    here, there = brokers
    await started(here)
    first = new_credential("SCRAM-SHA-256", "secret").to_text()
    await here.configs.change_user("al%20ice", lambda configs: {**configs, "SCRAM-SHA-256": first})
    assert list(here.scram_users) == ["al ice"]
    await started(there)
    assert there.scram_users.of("al ice") == here.scram_users.of("al ice")
    second = new_credential("SCRAM-SHA-512", "other").to_text()
    await there.configs.change_user("al%20ice", lambda configs: {**configs, "SCRAM-SHA-512": second})
    await until(lambda: set(here.scram_users.of("al ice")) == {"SCRAM-SHA-256", "SCRAM-SHA-512"})
    await here.configs.change_user("al%20ice", lambda configs: {})
    await until(lambda: list(there.scram_users) == [])


async def test_concurrent_changes_of_a_user_are_not_lost(brokers):
    here, there = brokers
    await started(here, there)
    text = new_credential("SCRAM-SHA-256", "secret").to_text()
    await asyncio.gather(
        here.configs.change_user("a", lambda configs: {**configs, "SCRAM-SHA-256": text}),
        there.configs.change_user("a", lambda configs: {**configs, "SCRAM-SHA-512": text}),
        here.configs.change_user("a", lambda configs: {**configs, "producer_byte_rate": "1"}),
    )
    assert set(await here.configs.read("users", "a")) == {"SCRAM-SHA-256", "SCRAM-SHA-512", "producer_byte_rate"}


async def test_users_that_went_while_a_broker_was_away_are_forgotten(brokers):
    here, there = brokers
    await started(here, there)
    text = new_credential("SCRAM-SHA-256", "secret").to_text()
    await here.configs.change_user("a", lambda configs: {"SCRAM-SHA-256": text})
    await until(lambda: "a" in there.scram_users)
    await here.coordination.delete("/config/users/a")
    there.configs.read_again()
    await until(lambda: "a" not in there.scram_users)


async def test_a_groups_settings_get_round_and_are_read_at_the_start(brokers):
    here, there = brokers
    await started(here)
    await here.configs.write("groups", entity_of("a/b"), {"consumer.session.timeout.ms": "50000"})
    assert here.group_configs.of("a/b") == {"consumer.session.timeout.ms": "50000"}
    await started(there)
    assert there.group_configs.of("a/b") == {"consumer.session.timeout.ms": "50000"}
    await here.configs.write("groups", entity_of("a/b"), {})
    await until(lambda: list(there.group_configs) == [])


async def test_all_is_read_at_the_start_and_after_a_lost_session(brokers):
    here, there = brokers
    await started(here)
    await here.configs.write("topics", "t", {"retention.ms": "5"})
    await here.configs.write("brokers", "<default>", {"message.max.bytes": "77"})
    await started(there)
    assert there.configs.of_topic("t") == {"retention.ms": "5"}
    assert there.config.int("message.max.bytes") == 77
    there.coordination.lose_session()
    await here.configs.write("topics", "t", {"retention.ms": "6"})
    there.coordination.start_session()
    await until(lambda: there.configs.of_topic("t") == {"retention.ms": "6"})
    await here.configs.write("topics", "t", {"retention.ms": "7"})
    await until(lambda: there.configs.of_topic("t") == {"retention.ms": "7"})


async def test_a_session_that_ends_between_the_first_read_and_the_start_is_noticed(brokers):
    here, there = brokers
    await started(here)
    await there.configs.load()
    there.coordination.lose_session()
    await here.configs.write("topics", "t", {"retention.ms": "6"})
    there.coordination.start_session()
    await asyncio.sleep(0)
    there.configs.start()
    await until(lambda: there.configs.of_topic("t") == {"retention.ms": "6"})


async def test_old_notifications_are_removed(brokers, clock):
    here, _ = brokers
    await started(here)
    await here.configs.write("topics", "t", {})
    clock.advance(15 * 60_000)
    await here.configs.write("topics", "u", {})
    await until(lambda: has_applied(here, 1))
    assert len(await here.coordination.children(CHANGES)) == 2
    clock.advance(1)
    await here.configs.write("topics", "v", {})
    await until(lambda: has_applied(here, 2))
    await until(lambda: len(here.coordination._host.tree.children(CHANGES)) == 2)


async def test_what_cannot_be_applied_is_passed_over(brokers):
    here, _ = brokers
    await here.coordination.create(
        "/config/brokers/<default>", EntityConfig({"message.max.bytes": "none"}).to_json(), make_parents=True
    )
    await started(here)
    await here.coordination.create(f"{CHANGES}/config_change_", b"no json", sequence=True)
    await here.coordination.create(f"{CHANGES}/config_change_", ConfigChange("users/u").to_json(), sequence=True)
    await here.configs.write("topics", "t", {"retention.ms": "5"})
    await until(lambda: has_applied(here, 2))
    assert here.config.int("message.max.bytes") != "none"


async def test_a_broker_keeps_its_settings_if_those_in_the_tree_become_unreadable(brokers, caplog):
    """A key store or a limit may be among them: the settings of the file must not come back."""
    here, _ = brokers
    await started(here)
    await here.configs.write("brokers", "1", {"message.max.bytes": "88"})
    await here.coordination.set("/config/brokers/1", b"no json")
    await here.coordination.create(f"{CHANGES}/config_change_", ConfigChange("brokers/1").to_json(), sequence=True)
    await until(lambda: has_applied(here, 1))
    assert here.config.int("message.max.bytes") == 88
    assert "keeps its present settings" in caplog.text


async def test_a_broker_does_not_start_with_settings_that_cannot_be_read(brokers):
    here, _ = brokers
    await here.coordination.create("/config/brokers/1", b"no json", make_parents=True)
    with pytest.raises(MalformedZnodeError):
        await here.configs.load()


async def test_everything_is_read_again_if_a_setting_could_not_be_applied(brokers, monkeypatch):
    """Otherwise users would stay as they were before the session was lost."""
    here, there = brokers
    await started(here, there)
    monkeypatch.setattr("headrace.broker.tree.follower._READ_AGAIN_AFTER_S", 0)
    failures = iter([RuntimeError("a fault in our code")])
    keep_only = there.scram_users.keep_only

    def fail_once(names):
        for failure in failures:
            raise failure
        keep_only(names)

    monkeypatch.setattr(there.scram_users, "keep_only", fail_once)
    there.coordination.lose_session()
    await here.configs.write("brokers", "<default>", {"message.max.bytes": "77"})
    there.coordination.start_session()
    there.configs.read_again()
    await until(lambda: there.config.int("message.max.bytes") == 77)


async def test_a_topic_that_is_gone_has_no_settings(brokers):
    here, _ = brokers
    await started(here)
    await here.configs.write("topics", "t", {"retention.ms": "5"})
    here.configs.topic_deleted("t")
    assert here.configs.of_topic("t") == {}
    assert await here.configs.read_new_topic("t") == {"retention.ms": "5"}
    assert await here.configs.read("topics", "never") == {}


async def test_passwords_are_encrypted_in_the_tree_and_with_a_new_secret_after_a_restart(clock, tmp_path):
    name = "listener.name.other.ssl.key.password"
    tree = TreeHost(clock)

    async def member(**settings):
        broker = ClusterMemberHarness(tree, clock, tmp_path / "1", broker_id=1, **settings)
        await broker.registration.identify()
        await broker.configs.load()
        return broker

    async def stored(broker):
        data, _ = await broker.coordination.get("/config/brokers/1")
        assert b"canary" not in data
        return EntityConfig.from_json(data).config[name]

    broker = await member(password_encoder_secret="one")
    await broker.configs.write("brokers", "1", {name: "canary"})
    assert broker.config.str(name) == "canary"
    assert PasswordEncoder("one").decode(await stored(broker)) == "canary"
    with pytest.raises(InvalidRequest, match="name a broker"):
        await broker.configs.write("brokers", "<default>", {name: "canary"})

    broker = await member(password_encoder_secret="two", password_encoder_old_secret="one")
    assert broker.config.str(name) == "canary"
    assert PasswordEncoder("two").decode(await stored(broker)) == "canary"

    broker = await member()
    assert name not in broker.config
