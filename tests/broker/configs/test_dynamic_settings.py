"""Settings that change at run time: compared with Apache Kafka, and each one with the test that shows its effect."""

import ast
import csv
from functools import cache
from pathlib import Path

import pytest

from headrace.broker.configs.alter import Operation, alter_broker
from headrace.broker.configs.broker_config import BrokerConfig
from headrace.broker.configs.describe import DescribeOptions, describe_broker
from headrace.broker.configs.dynamic import update_mode
from headrace.broker.configs.keys import Update
from headrace.broker.configs.registry import BROKER_KEYS
from headrace.properties import ConfigError
from headrace.protocol.errors import InvalidRequest, KafkaError

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent

_NO_TIERED_STORAGE = "there is no tiered storage"
_NO_KERBEROS = "there is no GSSAPI"
_FIXED_REFRESH = "a broker gets a new token after 80 % of the lifetime of its token"
_NO_JAVA = "nothing of Java is loaded by its name"

#: Settings that are dynamic in Kafka and read-only here, with the reason.
READ_ONLY_HERE = {
    "config.providers": "there are no config providers",
    "cordoned.log.dirs": "data folders cannot be cordoned",
    "follower.fetch.last.tiered.offset.enable": _NO_TIERED_STORAGE,
    "group.coordinator.cached.buffer.max.bytes": "coordinators do not cache buffers",
    "group.share.assignment.interval.ms": "there are no share groups",
    "group.streams.assignment.interval.ms": "there are no streams groups",
    "log.local.retention.bytes": _NO_TIERED_STORAGE,
    "log.local.retention.ms": _NO_TIERED_STORAGE,
    "log.message.downconversion.enable": "records are never converted to older formats",
    "log.message.timestamp.difference.max.ms": "Kafka 4 has removed it; here it has no effect",
    "metric.reporters": _NO_JAVA,
    "principal.builder.class": _NO_JAVA,
    "remote.fetch.max.wait.ms": _NO_TIERED_STORAGE,
    "remote.list.offsets.request.timeout.ms": _NO_TIERED_STORAGE,
    "remote.log.index.file.cache.total.size.bytes": _NO_TIERED_STORAGE,
    "remote.log.manager.copier.thread.pool.size": _NO_TIERED_STORAGE,
    "remote.log.manager.copy.max.bytes.per.second": _NO_TIERED_STORAGE,
    "remote.log.manager.expiration.thread.pool.size": _NO_TIERED_STORAGE,
    "remote.log.manager.fetch.max.bytes.per.second": _NO_TIERED_STORAGE,
    "remote.log.manager.follower.thread.pool.size": _NO_TIERED_STORAGE,
    "remote.log.reader.threads": _NO_TIERED_STORAGE,
    "sasl.kerberos.kinit.cmd": _NO_KERBEROS,
    "sasl.kerberos.min.time.before.relogin": _NO_KERBEROS,
    "sasl.kerberos.principal.to.local.rules": _NO_KERBEROS,
    "sasl.kerberos.service.name": _NO_KERBEROS,
    "sasl.kerberos.ticket.renew.jitter": _NO_KERBEROS,
    "sasl.kerberos.ticket.renew.window.factor": _NO_KERBEROS,
    "sasl.login.refresh.buffer.seconds": _FIXED_REFRESH,
    "sasl.login.refresh.min.period.seconds": _FIXED_REFRESH,
    "sasl.login.refresh.window.factor": _FIXED_REFRESH,
    "sasl.login.refresh.window.jitter": _FIXED_REFRESH,
    "share.coordinator.cached.buffer.max.bytes": "there are no share groups",
    "ssl.engine.factory.class": _NO_JAVA,
    "ssl.keymanager.algorithm": _NO_JAVA,
    "ssl.provider": _NO_JAVA,
    "ssl.secure.random.implementation": _NO_JAVA,
    "ssl.trustmanager.algorithm": _NO_JAVA,
}

#: Settings that are dynamic here and not in Kafka, with the reason.
DYNAMIC_ONLY_HERE = {
    "headrace.login.timeout.ms": "a setting of our own",
    "headrace.max.unauthenticated.connections": "a setting of our own",
    "headrace.telemetry.max.series": "a setting of our own",
    "headrace.walk.records": "a setting of our own",
}


#: The names of the dynamic settings, sorted.
DYNAMIC = sorted(name for name, key in BROKER_KEYS.items() if key.update is not Update.READ_ONLY)


def kafkas_modes() -> dict[str, Update]:
    """How Kafka 3.9.1 or 4.3.0 changes a setting, as printed by its own DynamicBrokerConfig.

    Each of the two versions has settings that the other does not have, or does not change. Where one of them changes a
    setting, so should we.
    """
    with (HERE / "kafka_dynamic_settings.csv").open(encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    modes = {}
    for name, *versions in rows:
        (mode,) = {Update(version) for version in versions} - {Update.READ_ONLY}
        modes[name] = mode
    return modes


@pytest.mark.parametrize(("name", "mode"), kafkas_modes().items())
def test_a_setting_changes_as_in_kafka_or_is_read_only_for_a_reason(name: str, mode: Update) -> None:
    assert update_mode(name) is (Update.READ_ONLY if name in READ_ONLY_HERE else mode)


def test_no_other_setting_is_dynamic() -> None:
    assert set(DYNAMIC) - kafkas_modes().keys() == DYNAMIC_ONLY_HERE.keys()


def test_every_reason_is_for_a_setting_of_kafkas() -> None:
    assert READ_ONLY_HERE.keys() <= kafkas_modes().keys()


@pytest.mark.parametrize("name", sorted(READ_ONLY_HERE))
def test_a_read_only_setting_is_described_as_such_and_cannot_be_changed(name: str) -> None:
    config = BrokerConfig.load({name: ""} if name not in BROKER_KEYS else {})
    (entry,) = describe_broker(config, DescribeOptions(names=[name]))
    assert entry["read_only"] is True
    for per_broker in (True, False):
        with pytest.raises(KafkaError, match=name):
            alter_broker({}, [(name, Operation.SET, "1")], config, per_broker=per_broker)


@pytest.mark.parametrize(
    "name",
    [
        "auto.leader.rebalance.enable",
        "leader.imbalance.check.interval.seconds",
        "leader.imbalance.per.broker.percentage",
        "inter.broker.listener.name",
        "security.inter.broker.protocol",
        "log.cleaner.enable",
        "super.users",
    ],
)
def test_settings_that_are_read_only_in_kafka_are_so_here(name: str) -> None:
    assert name not in kafkas_modes()
    (entry,) = describe_broker(BrokerConfig.load({}), DescribeOptions(names=[name]))
    assert entry["read_only"] is True


@pytest.mark.parametrize("name", DYNAMIC)
def test_a_dynamic_setting_is_not_described_as_read_only(name: str) -> None:
    (entry,) = describe_broker(BrokerConfig.load({}), DescribeOptions(names=[name]))
    assert entry["read_only"] is False


# -- the effects


@cache
def functions_of(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def shown_effects() -> dict[str, str]:
    """Each dynamic setting with the test that changes it on something that runs, and observes the effect."""
    with (HERE / "dynamic_setting_effects.csv").open(encoding="utf-8") as file:
        return dict(csv.reader(file))


def test_the_table_of_effects_has_every_dynamic_setting() -> None:
    assert list(shown_effects()) == DYNAMIC


def test_the_tests_that_show_the_effects_exist() -> None:
    shown = {name: test.partition("::") for name, test in shown_effects().items()}
    missing = {name: test for name, test in shown.items() if test[2] not in functions_of(test[0])}
    assert not missing


# -- what a broker does with settings that it cannot use


def test_the_broker_uses_all_stored_settings_but_the_bad_ones(caplog: pytest.LogCaptureFixture) -> None:
    config = BrokerConfig.load({"num.partitions": "4"})
    changed = config.apply_dynamic(
        {"num.partitions": "9", "num.io.threads": "x", "message.max.bytes": "77", "remote.log.reader.threads": "3"},
        {"listeners": "PLAINTEXT://:1", "num.io.threads": "5"},
    )
    assert changed == {"message.max.bytes", "num.io.threads"}
    assert config.int("num.partitions") == 4
    assert config.int("num.io.threads") == 5, "the cluster's value, because the broker's own is no number"
    assert config.not_in_force.keys() == {"num.partitions", "remote.log.reader.threads", "listeners"}
    for reason in (
        "num.partitions is read-only",
        "remote.log.reader.threads is read-only",
        "listeners can only be set on one broker",
        "Invalid value 'x' for configuration num.io.threads",
    ):
        assert reason in caplog.text
    config.apply_dynamic(config.dynamic_broker, config.dynamic_default)
    assert len(caplog.messages) == 1, "the same settings are not logged again"


def test_stored_settings_that_contradict_each_other_change_nothing() -> None:
    config = BrokerConfig.load({"num.io.threads": "5"})
    for name, value, why in [
        ("log.retention.ms", "0", "at least 1"),
        ("listeners", "nonsense", "NAME://HOST:PORT"),
    ]:
        with pytest.raises(InvalidRequest, match=why):
            config.apply_dynamic({name: value, "num.io.threads": "6"}, {})
    assert config.int("num.io.threads") == 5


def test_a_bad_setting_that_is_stored_does_not_block_other_changes() -> None:
    config = BrokerConfig.load({})
    stored = {"num.partitions": "9", "num.io.threads": "x"}
    config.apply_dynamic(stored, {})
    changed = alter_broker(stored, [("message.max.bytes", Operation.SET, "77")], config, per_broker=True)
    assert changed == {**stored, "message.max.bytes": "77"}
    removed = alter_broker(stored, [("num.partitions", Operation.DELETE, None)], config, per_broker=True)
    assert removed == {"num.io.threads": "x"}


def test_a_change_with_a_bad_value_is_refused_though_such_a_value_would_only_be_ignored() -> None:
    config = BrokerConfig.load({})
    with pytest.raises(InvalidRequest, match="whole number"):
        alter_broker({}, [("num.io.threads", Operation.SET, "x")], config, per_broker=True)
    with pytest.raises(ConfigError):
        BrokerConfig.load({"num.io.threads": "x"})


# -- sizes of thread pools


@pytest.mark.parametrize(
    ("name", "static"),
    [
        ("background.threads", "10"),
        ("log.cleaner.threads", "4"),
        ("num.io.threads", "8"),
        ("num.network.threads", "3"),
        ("num.recovery.threads.per.data.dir", "2"),
        ("num.replica.fetchers", "5"),
    ],
)
def test_a_pool_at_most_doubles_or_halves_at_once(name: str, static: str) -> None:
    config = BrokerConfig.load({name: static})
    before = int(static)
    for good in (before // 2 or 1, before, before * 2):
        assert alter_broker({}, [(name, Operation.SET, str(good))], config, per_broker=True) == {name: str(good)}
    for bad in (0, before // 2 - 1, before * 2 + 1):
        with pytest.raises(InvalidRequest, match=name):
            alter_broker({}, [(name, Operation.SET, str(bad))], config, per_broker=False)


def test_removing_the_size_of_a_pool_follows_the_same_rule() -> None:
    config = BrokerConfig.load({"num.io.threads": "2"})
    config.apply_dynamic({"num.io.threads": "8"}, {})
    with pytest.raises(InvalidRequest, match="from 8 to 2: the new value must be at least half"):
        alter_broker({"num.io.threads": "8"}, [("num.io.threads", Operation.DELETE, None)], config, per_broker=True)


def test_the_network_threads_of_a_listener_follow_the_same_rule() -> None:
    name = "listener.name.plaintext.num.network.threads"
    config = BrokerConfig.load({})
    assert alter_broker({}, [(name, Operation.SET, "6")], config, per_broker=False) == {name: "6"}
    with pytest.raises(InvalidRequest, match=f"{name} from 3 to 7: the new value must be at most twice"):
        alter_broker({}, [(name, Operation.SET, "7")], config, per_broker=True)
