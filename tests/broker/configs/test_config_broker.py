"""A broker's settings: loading, listeners, layers, changes at run time."""

from collections.abc import Mapping

import pytest

from headrace.broker.configs.alter import Operation, alter_broker, replace_broker
from headrace.broker.configs.broker_config import BrokerConfig
from headrace.broker.configs.describe import DescribeOptions, describe_broker
from headrace.broker.configs.keys import Value
from headrace.properties import ConfigError, parse_properties
from headrace.protocol.errors import InvalidConfig, InvalidRequest

#: The default of every setting of how long a log is kept.
_WEEK = ("log.retention.hours", "168", 5)


@pytest.fixture
def config() -> BrokerConfig:
    return BrokerConfig.load({"listeners": "PLAINTEXT://127.0.0.1:9092", "num.io.threads": "4"})


def problems(properties: dict[str, str]) -> list[str]:
    with pytest.raises(ConfigError) as error:
        BrokerConfig.load(properties)
    return error.value.problems


def test_typed_access(config: BrokerConfig) -> None:
    assert config["num.partitions"] == config.int("num.partitions") == 1
    assert config.bool("auto.create.topics.enable") is True
    assert config.str("compression.type") == "producer"
    assert config.list("log.cleanup.policy") == ("delete",)
    assert config.list("log.dirs") == ()
    assert config.float("log.cleaner.io.buffer.load.factor") == 0.9
    assert config.optional_int("log.retention.ms") is None
    assert config.optional_str("broker.rack") is None
    with pytest.raises(KeyError):
        config["no.such.name"]
    with pytest.raises(AssertionError):
        config.int("compression.type")


def test_every_mistake_is_one_line() -> None:
    assert problems({"num.partitions": "x", "log.dirs": "", "listeners": "here", "retries": "x"}) == [
        "Invalid value 'x' for configuration num.partitions: must be a whole number of 32 bits",
        "Invalid value '' for configuration log.dirs: must be a list, not empty, each item once and none blank",
        "Invalid value 'here' for configuration listeners: must be NAME://HOST:PORT",
    ]


def test_a_bad_password_is_not_shown() -> None:
    assert "hunter2" not in str(problems({"ssl.keystore.password": "hunter2", "num.partitions": "x"}))


def test_names_that_are_not_ours_are_kept_apart() -> None:
    config = BrokerConfig.load({"num.partitons": "3", "process.roles": "broker", "remote.log.reader.threads": "1"})
    assert config.unknown == {"num.partitons": "3"}
    assert set(config.ignored) == {"process.roles", "remote.log.reader.threads"}


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"replica.socket.timeout.ms": "400"}, "(500) is greater than replica.socket.timeout.ms (400)"),
        ({"log.retention.ms": "0"}, "log.retention.ms: must be -1 (forever) or at least 1"),
        ({"log.retention.hours": "-2"}, "log.retention.hours: must be -1 (forever) or at least 1"),
        ({"log.roll.ms": "0"}, "log.roll.ms: must be at least 1"),
        ({"log.cleaner.threads": "200"}, "more than 1 MiB for each of log.cleaner.threads (200)"),
        ({"queued.max.request.bytes": "10"}, "less than socket.request.max.bytes"),
        ({"max.connections.per.ip": "0"}, "must be at least 1 unless"),
        ({"max.connections.per.ip.overrides": "here"}, "must be HOST:COUNT"),
        ({"broker.id": "1", "node.id": "2"}, "broker.id (1) differs from node.id (2)"),
        ({"broker.id": "2000", "zookeeper.connect": "z:2181"}, "at most reserved.broker.max.id (1000)"),
        ({"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "5"}, "(9) is greater than"),
    ],
)
def test_settings_that_do_not_go_together(properties: dict[str, str], problem: str) -> None:
    assert [problem in line for line in problems(properties)] == [True]


def test_a_kraft_file_works_as_it_is() -> None:
    config = BrokerConfig.load(
        parse_properties(
            """
            process.roles=broker,controller
            node.id=1
            controller.quorum.bootstrap.servers=localhost:9093
            listeners=PLAINTEXT://:9092,CONTROLLER://:9093
            inter.broker.listener.name=PLAINTEXT
            advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
            controller.listener.names=CONTROLLER
            listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
            log.dirs=/tmp/kraft-combined-logs
            """
        )
    )
    assert config.broker_id == 1
    assert not config.unknown
    assert [str(listener) for listener in config.listeners.bound] == ["PLAINTEXT://:9092"]
    assert [str(listener) for listener in config.listeners.advertised] == ["PLAINTEXT://localhost:9092"]
    assert config.log_dirs == ("/tmp/kraft-combined-logs",)


def test_ids_and_folders_may_be_unset() -> None:
    config = BrokerConfig.load({})
    assert config.broker_id is None
    assert config.log_dirs == ()
    assert BrokerConfig.load({"broker.id": "0"}).broker_id == 0
    assert BrokerConfig.load({"log.dir": "/a"}).log_dirs == ("/a",)


def test_listeners() -> None:
    listeners = BrokerConfig.load(
        {
            "listeners": "inside://[::1]:9092,OUTSIDE://:0",
            "advertised.listeners": "OUTSIDE://example.org:443,INSIDE://[::1]:9092",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT, outside:plaintext",
            "inter.broker.listener.name": "INSIDE",
        }
    ).listeners
    assert [(one.name, one.host, one.port, one.protocol) for one in listeners.bound] == [
        ("INSIDE", "::1", 9092, "PLAINTEXT"),
        ("OUTSIDE", "", 0, "PLAINTEXT"),
    ]
    assert str(listeners.advertised[1]) == "INSIDE://[::1]:9092"
    assert listeners.inter_broker == "INSIDE"
    assert [each.port for each in listeners.bound if each.name == "OUTSIDE"] == [0]


IN_IS_PLAINTEXT = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,IN:PLAINTEXT"}


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"listeners": "PLAINTEXT://a:99999"}, "must be NAME://HOST:PORT"),
        ({"listeners": "MINE://a:1"}, "has no protocol for MINE"),
        ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://a:2"}, "PLAINTEXT appears twice"),
        ({"listeners": "PLAINTEXT://a:1,IN://a:1", **IN_IS_PLAINTEXT}, "each listener must have its own port"),
        ({"listeners": "IN://a:1", **IN_IS_PLAINTEXT}, "must be the name of a listener"),
        ({"inter.broker.listener.name": "SSL"}, "must be the name of a listener"),
        ({"listener.security.protocol.map": "PLAINTEXT:TELNET"}, "must be NAME:PROTOCOL"),
        ({"advertised.listeners": "SSL://a:1"}, "listeners has no SSL"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "a client can connect to"),
        ({"controller.listener.names": "PLAINTEXT"}, "must have at least one listener"),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
            "Only one of inter.broker.listener.name and",
        ),
    ],
)
def test_bad_listeners(properties: dict[str, str], problem: str) -> None:
    assert [problem in line for line in problems(properties)] == [True]


def test_a_listener_may_have_its_own_value() -> None:
    config = BrokerConfig.load(
        {
            "num.network.threads": "4",
            "listener.name.outside.num.network.threads": "5",
            "listener.name.outside.plain.num.network.threads": "6",
        }
    )
    assert config["listener.name.outside.num.network.threads"] == 5
    assert config["num.network.threads"] == 4
    with pytest.raises(KeyError):
        config["listener.name.inside.num.network.threads"]
    assert config["listener.name.outside.plain.num.network.threads"] == 6
    with pytest.raises(KeyError):
        config["listener.name.outside.scram-sha-256.num.network.threads"]


def test_dynamic_layers_and_who_is_told(config: BrokerConfig) -> None:
    seen: list[Value] = []
    together: list[frozenset[str]] = []
    config.on_change("num.io.threads", seen.append)
    config.on_any_change(together.append)

    assert config.apply_dynamic({}, {"num.io.threads": "5"}) == {"num.io.threads"}
    assert config.apply_dynamic({"num.io.threads": "6"}, {"num.io.threads": "5"}) == {"num.io.threads"}
    assert config.apply_dynamic({"num.io.threads": "6"}, {"num.io.threads": "7"}) == set()
    assert config.apply_dynamic({"log.segment.bytes": "99"}, {}) == {"num.io.threads", "log.segment.bytes"}

    assert seen == [5, 6, 4]
    assert together[-1] == {"num.io.threads", "log.segment.bytes"}
    assert len(together) == 3


def test_listeners_change_at_run_time(config: BrokerConfig) -> None:
    config.apply_dynamic({"listeners": "PLAINTEXT://127.0.0.1:9095"}, {})
    assert config.listeners.bound[0].port == 9095


def test_alter_broker(config: BrokerConfig) -> None:
    changed = alter_broker({}, [("num.io.threads", Operation.SET, "8")], config, per_broker=True)
    assert changed == {"num.io.threads": "8"}
    assert alter_broker(changed, [("num.io.threads", Operation.DELETE, None)], config, per_broker=True) == {}
    appended = alter_broker({}, [("log.cleanup.policy", Operation.APPEND, "compact")], config, per_broker=False)
    assert appended == {"log.cleanup.policy": "delete,compact"}
    assert replace_broker([("message.max.bytes", "5")], config, per_broker=False) == {"message.max.bytes": "5"}
    assert alter_broker({}, [("my.own", Operation.SET, "x")], config, per_broker=True) == {"my.own": "x"}


@pytest.mark.parametrize(
    ("name", "operation", "value", "per_broker", "why"),
    [
        ("num.io.threads", 0, "9", True, "at most twice"),
        ("num.io.threads", 0, "1", False, "at least half"),
        ("num.io.threads", 0, None, True, "Null value"),
        ("num.io.threads", 7, "1", True, "Unknown operation 7"),
        ("broker.id", 0, "1", True, "Cannot update these configs dynamically: broker.id"),
        ("listeners", 0, "PLAINTEXT://a:1", False, "for the whole cluster"),
        ("listener.name.a.listeners", 0, "PLAINTEXT://a:1", False, "for the whole cluster"),
        ("log.cleaner.threads", 0, "-1", True, "at least 0"),
        ("max.connection.creation.rate", 0, "0", True, "must be at least 1"),
        ("listener.name.plaintext.max.connection.creation.rate", 0, "0", False, "must be at least 1"),
    ],
)
def test_alter_broker_refuses(
    config: BrokerConfig, name: str, operation: int, value: str | None, per_broker: bool, why: str
) -> None:
    with pytest.raises(InvalidRequest, match=why):
        alter_broker({}, [(name, operation, value)], config, per_broker=per_broker)


@pytest.mark.parametrize("operation", [Operation.APPEND, Operation.SUBTRACT])
def test_only_lists_grow_and_shrink(config: BrokerConfig, operation: Operation) -> None:
    with pytest.raises(InvalidConfig, match="not LIST"):
        alter_broker({}, [("num.io.threads", operation, "1")], config, per_broker=True)


def test_describe_broker_shows_layers_in_order(config: BrokerConfig) -> None:
    config.apply_dynamic({"num.io.threads": "6"}, {"num.io.threads": "5"})
    (entry,) = describe_broker(
        config, DescribeOptions(names=["num.io.threads"], include_synonyms=True, include_documentation=True)
    )
    assert (entry["value"], entry["config_source"], entry["read_only"], entry["config_type"]) == ("6", 2, False, 3)
    assert [(synonym["value"], synonym["source"]) for synonym in entry["synonyms"]] == [
        ("6", 2),
        ("5", 3),
        ("4", 4),
        ("8", 5),
    ]
    assert str(entry["documentation"]).startswith("Threads for blocking work")


@pytest.mark.parametrize(
    ("name", "synonyms"),
    [
        ("log.retention.ms", []),
        ("log.retention.minutes", [("log.retention.minutes", "2", 4), ("log.retention.hours", "1", 4), _WEEK]),
        ("log.retention.hours", [("log.retention.hours", "1", 4), _WEEK]),
        ("log.roll.ms", []),
        ("log.flush.interval.ms", []),
        ("broker.id", [("broker.id", "1", 4), ("broker.id", "-1", 5)]),
        ("my.own.setting", [("my.own.setting", None, 4)]),
        ("process.roles", [("process.roles", None, 4)]),
    ],
)
def test_synonyms_of_a_brokers_settings_are_those_that_apache_kafka_4_3_gives(
    name: str, synonyms: list[tuple[str, str | None, int]]
) -> None:
    config = BrokerConfig.load(
        {
            "node.id": "1",
            "log.retention.hours": "1",
            "log.retention.minutes": "2",
            "log.roll.hours": "7",
            "log.flush.scheduler.interval.ms": "60000",
            "my.own.setting": "secret",
            "process.roles": "broker",
        }
    )
    (entry,) = describe_broker(config, DescribeOptions(names=[name], include_synonyms=True))
    assert _synonyms(entry) == synonyms
    assert entry["config_source"] == (synonyms[0][2] if synonyms else 5)
    assert "secret" not in str(entry)


@pytest.mark.parametrize("name", ["broker.id", "node.id"])
def test_a_brokers_id_has_two_names_and_both_are_as_given(name: str) -> None:
    config = BrokerConfig.load({name: "7"})
    entries = describe_broker(config, DescribeOptions(names=["broker.id", "node.id"]))
    assert [(entry["value"], entry["config_source"]) for entry in entries] == [("7", 4)] * 2
    settled = BrokerConfig.load({})
    settled.set_broker_id(7)
    assert describe_broker(settled, DescribeOptions(names=["broker.id", "node.id"])) == entries


def test_a_dynamic_setting_in_a_finer_unit_is_no_synonym_of_a_coarser_one(config: BrokerConfig) -> None:
    config.apply_dynamic({"log.retention.ms": "9"}, {})
    fine, coarse = describe_broker(
        config, DescribeOptions(names=["log.retention.ms", "log.retention.hours"], include_synonyms=True)
    )
    assert _synonyms(fine) == [("log.retention.ms", "9", 2), _WEEK]
    assert (_synonyms(coarse), coarse["config_source"]) == ([_WEEK], 5)


def test_what_is_set_for_one_listener_is_read_only_and_not_documented() -> None:
    name = "listener.name.plaintext.connections.max.idle.ms"
    config = BrokerConfig.load({name: "100"})
    (entry,) = describe_broker(config, DescribeOptions(names=[name], include_synonyms=True, include_documentation=True))
    assert (entry["value"], entry["read_only"], entry["documentation"], entry["config_source"]) == (
        "100",
        True,
        None,
        4,
    )
    assert _synonyms(entry) == [(name, "100", 4), ("connections.max.idle.ms", "600000", 5)]


def _synonyms(entry: Mapping[str, object]) -> list[tuple[str, str | None, int]]:
    return [(each["name"], each["value"], each["source"]) for each in entry["synonyms"]]  # type: ignore[attr-defined]


def test_describe_all_of_a_broker(config: BrokerConfig) -> None:
    config.apply_dynamic({"ssl.keystore.password": "hunter2", "my.own": "x"}, {})
    entries = {str(entry["name"]): entry for entry in describe_broker(config, DescribeOptions(include_synonyms=True))}
    assert entries["zookeeper.connect"]["read_only"] is True
    assert entries["num.partitions"]["config_source"] == 5
    assert entries["num.partitions"]["documentation"] is None
    password, unknown = entries["ssl.keystore.password"], entries["my.own"]
    assert (password["value"], password["is_sensitive"], password["config_type"]) == (None, True, 9)
    assert password["synonyms"] == [{"name": "ssl.keystore.password", "value": None, "source": 2}]
    assert (unknown["value"], unknown["is_sensitive"], unknown["config_type"]) == (None, True, 0)
    assert "hunter2" not in str(entries)


def test_describe_the_cluster_default(config: BrokerConfig) -> None:
    config.apply_dynamic({"num.io.threads": "6"}, {"num.io.threads": "5"})
    (entry,) = describe_broker(config, DescribeOptions(include_synonyms=True), cluster_default=True)
    assert (entry["value"], entry["config_source"]) == ("5", 3)
    assert entry["synonyms"] == [{"name": "num.io.threads", "value": "5", "source": 3}]


def test_a_listener_sees_a_setting_of_its_own_from_the_change_on() -> None:
    config = BrokerConfig.load({})
    listener = config.of_listener("PLAINTEXT")
    own = "listener.name.plaintext.max.connections"
    assert listener.name_of("max.connections") == "max.connections"
    config.apply_dynamic({own: "5"}, {})
    assert (listener.name_of("max.connections"), listener.int("max.connections")) == (own, 5)
    config.apply_dynamic({}, {})
    assert listener.name_of("max.connections") == "max.connections"
