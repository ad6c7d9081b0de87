"""The choice of a broker's authorizer, and its log lines at the start."""

import pytest

from headrace.broker.authorization.acl_authorizer import AclAuthorizer
from headrace.broker.authorization.authorizer import AllowAll
from headrace.broker.authorization.choice import start_authorizer
from headrace.broker.configs.broker_config import BrokerConfig
from headrace.broker.configs.table_security import KAFKA_AUTHORIZERS
from headrace.broker.start_error import StartError
from headrace.coordination.client.local_client import LocalCoordination
from headrace.coordination.tree.host import TreeHost
from headrace.properties import ConfigError
from headrace.testing import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def tree(clock):
    return LocalCoordination(TreeHost(clock))


def config(**settings):
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return BrokerConfig.load({"listeners": "PLAINTEXT://127.0.0.1:0", **given})


@pytest.mark.parametrize("name", KAFKA_AUTHORIZERS)
async def test_the_names_of_kafkas_authorizers_switch_ours_on(tree, clock, name, caplog):
    running = await start_authorizer(config(authorizer_class_name=name, super_users="User:a"), tree, clock)
    assert isinstance(running.authorizer, AclAuthorizer)
    await running.stop()
    assert caplog.messages == []


async def test_without_an_authorizer_its_settings_are_only_named(tree, clock, caplog):
    running = await start_authorizer(config(super_users="User:a"), tree, clock)
    assert isinstance(running.authorizer, AllowAll)
    assert caplog.messages == [
        "super.users has no effect without authorizer.class.name: every client may do everything"
    ]


def test_super_users_must_be_principals():
    with pytest.raises(ConfigError, match=r"super\.users"):
        config(authorizer_class_name=KAFKA_AUTHORIZERS[0], super_users="alice")


async def test_rules_that_cannot_be_read_stop_the_start(tree, clock):
    await tree.create("/kafka-acl/Topic/t", b"nonsense", make_parents=True)
    with pytest.raises(StartError, match="the ACLs cannot be read: the ACLs in /kafka-acl/Topic/t cannot be read"):
        await start_authorizer(config(authorizer_class_name=KAFKA_AUTHORIZERS[0]), tree, clock)


@pytest.mark.parametrize(("users", "is_warned"), [("User:admin", True), ("User:admin;User:ANONYMOUS", False)])
async def test_anonymous_brokers_need_rights(tree, clock, caplog, users, is_warned):
    settings = config(authorizer_class_name=KAFKA_AUTHORIZERS[0], super_users=users, zookeeper_connect="z:1")
    running = await start_authorizer(settings, tree, clock)
    await running.stop()
    assert ["refuse each other's requests" in line for line in caplog.messages] == [True] * is_warned
