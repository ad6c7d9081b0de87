"""Settings that promise safety which Headrace does not give: refused wherever they come from."""

from pathlib import Path

import pytest
from broker_harness import BROKER, Client

from headrace import Broker
from headrace.broker.cluster.unenforced_rules import warn_of_unenforced_rules
from headrace.broker.configs.alter import alter_broker, replace_broker
from headrace.broker.configs.broker_config import BrokerConfig
from headrace.broker.configs.describe import DescribeOptions, describe_broker
from headrace.broker.configs.refusals import refused_row
from headrace.broker.configs.registry import BROKER_KEYS, without_meaning
from headrace.coordination.client.local_client import LocalCoordination
from headrace.coordination.tree.host import TreeHost
from headrace.properties import ConfigError
from headrace.protocol.errors import ErrorCode, InvalidConfig, InvalidRequest
from headrace.security.tls.options import SETTING_NAMES
from headrace.testing import ManualClock
from headrace.testing.broker_process import BrokerProcess, StartFailed
from headrace.tools.start import command as start_command

SET, DELETE, APPEND = 0, 1, 2
ALL_OF_KAFKA = (Path(__file__).parent / "kafka_setting_names.txt").read_text().split()
SECRET = "hunter2"

REFUSED = [
    "config.providers=file",
    "config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider",
    "security.providers=com.example.Provider",
    "security.protocol=SSL",
    "authorizer.class.name=com.example.Authorizer",
    "authorizer.zookeeper.url=zk2:2181",
    "principal.builder.class=com.example.Builder",
    "ssl.engine.factory.class=com.example.Factory",
    "ssl.provider=BC",
    "ssl.secure.random.implementation=SHA1PRNG",
    "ssl.trustmanager.algorithm=Custom",
    "ssl.keymanager.algorithm=Custom",
    "ssl.keystore.locaton=/a/typing/error",
    "sasl.oauthbearer.client.typing.error=x",
    "sasl.oauthbearer.assertion.file=/a",
    "sasl.login.class=com.example.Login",
    "sasl.kerberos.service.name=kafka",
    "listener.name.internal.plain.sasl.client.callback.handler.class=com.example.Handler",
    "listener.name.internal.principal.builder.class=com.example.Builder",
    "create.topic.policy.class.name=com.example.Policy",
    "alter.config.policy.class.name=com.example.Policy",
    "client.quota.callback.class=com.example.Callback",
    "quota.producer.default=1048576",
    "quota.consumer.default=1048576",
    "zookeeper.ssl.crl.enable=true",
    "zookeeper.ssl.ocsp.enable=true",
    "zookeeper.sasl.client=true",
]
#: Settings that ask for no security explicitly, or ask for nothing.
ACCEPTED = [
    "listeners=INSIDE://127.0.0.1:0\nlistener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:SASL_SSL\n"
    "inter.broker.listener.name=INSIDE",
    "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
    "security.inter.broker.protocol=PLAINTEXT",
    "authorizer.class.name=",
    "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=",
    "super.users=User:admin;User:CN=broker,O=Acme",
    "allow.everyone.if.no.acl.found=false",
    "principal.builder.class=org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
    "ssl.client.auth=none",
    "ssl.trustmanager.algorithm=PKIX",
    "ssl.keymanager.algorithm=SunX509",
    "ssl.endpoint.identification.algorithm=",
    "sasl.enabled.mechanisms=",
    "connections.max.reauth.ms=0",
    "quota.producer.default=9223372036854775807",
    "quota.window.num=3",
    "controller.quota.window.size.seconds=5",
    "max.connection.creation.rate=100",
    "listener.name.internal.max.connection.creation.rate=10",
    "max.connections=100",
    "listener.name.internal.max.connections=10",
    "max.connections.per.ip=10",
    "replication.quota.window.num=5",
    f"delegation.token.secret.key={SECRET}",
    f"delegation.token.master.key={SECRET}",
    "delegation.token.expiry.time.ms=1000",
    "zookeeper.ssl.crl.enable=false",
    "zookeeper.sasl.client=false",
    "early.start.listeners=CONTROLLER",
    "control.plane.listener.name=PLAINTEXT",
]


def properties(text):
    return dict(line.split("=", 1) for line in text.splitlines())


def name_of(setting):
    return setting.partition("=")[0]


@pytest.mark.parametrize("setting", REFUSED)
def test_refused(setting):
    with pytest.raises(ConfigError) as error:
        BrokerConfig.load({"listeners": "PLAINTEXT://127.0.0.1:0", **properties(setting)})
    (line,) = error.value.problems
    assert name_of(setting) in line
    assert "Headrace does not have this yet" in line
    assert "Remove" in line
    assert SECRET not in line


@pytest.mark.parametrize("setting", ACCEPTED)
def test_accepted(setting):
    config = BrokerConfig.load({"listeners": "PLAINTEXT://127.0.0.1:0", **properties(setting)})
    assert not config.unknown


def test_all_refused_settings_are_one_line():
    with pytest.raises(ConfigError) as error:
        BrokerConfig.load(
            {
                "security.providers": "a.B",
                "authorizer.class.name": "a.B",
                "num.partitions": "x",
            }
        )
    assert error.value.problems == [
        "Cannot accept security.providers, authorizer.class.name: Headrace does not have this yet (missing: security "
        "providers of Java, other authorizers than Kafka's own), and nothing would be protected. Remove these settings"
    ]


def test_every_setting_of_apache_kafka_is_decided_on():
    """Names that 3.9.1 and 4.3.0 define: each has a row, or is without meaning for a reason, or is refused."""
    assert len(ALL_OF_KAFKA) > 400
    undecided = [name for name in ALL_OF_KAFKA if name not in BROKER_KEYS and without_meaning(name) is None]
    assert undecided == []


def test_what_sounds_like_safety_is_refused_or_known_to_be_in_force():
    words = (
        "ssl",
        "sasl",
        "acl",
        "auth",
        "token",
        "quota",
        "security",
        "principal",
        "users",
        "policy",
        "encoder",
        "rate",
    )
    not_refused = {
        name for name in ALL_OF_KAFKA if any(word in name.split(".") for word in words) and refused_row(name) is None
    }
    assert not_refused - set(SETTING_NAMES) == {
        *(name for name in BROKER_KEYS if name.startswith("zookeeper.ssl.") and refused_row(name) is None),
        "zookeeper.set.acl",
        "max.connection.creation.rate",
        "quota.window.num",
        "quota.window.size.seconds",
        "controller.quota.window.num",
        "controller.quota.window.size.seconds",
        "alter.log.dirs.replication.quota.window.num",
        "alter.log.dirs.replication.quota.window.size.seconds",
        "delegation.token.expiry.check.interval.ms",
        "delegation.token.expiry.time.ms",
        "delegation.token.master.key",
        "delegation.token.max.lifetime.ms",
        "delegation.token.secret.key",
        "follower.replication.throttled.rate",
        "group.consumer.migration.policy",
        "leader.replication.throttled.rate",
        "listener.security.protocol.map",
        "log.cleanup.policy",
        "remote.log.manager.copy.quota.window.num",
        "remote.log.manager.copy.quota.window.size.seconds",
        "remote.log.manager.fetch.quota.window.num",
        "remote.log.manager.fetch.quota.window.size.seconds",
        "password.encoder.cipher.algorithm",
        "password.encoder.iterations",
        "password.encoder.key.length",
        "password.encoder.keyfactory.algorithm",
        "password.encoder.old.secret",
        "password.encoder.secret",
        "replication.quota.window.num",
        "replication.quota.window.size.seconds",
        "sasl.enabled.mechanisms",
        "sasl.jaas.config",
        "sasl.login.callback.handler.class",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "sasl.mechanism.controller.protocol",
        "sasl.mechanism.inter.broker.protocol",
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.header.urlencode",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.jwt.retriever.class",
        "sasl.oauthbearer.jwt.validator.class",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.sub.claim.name",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.server.callback.handler.class",
        "sasl.server.max.receive.size",
        "security.inter.broker.protocol",
        "ssl.allow.dn.changes",
        "ssl.allow.san.changes",
        "ssl.principal.mapping.rules",
    } & set(ALL_OF_KAFKA)


# -- where settings come from


@pytest.mark.parametrize("more", [[], ["--brokers", "3"], ["--zookeeper", "127.0.0.1:1"]], ids=["alone", "3", "joins"])
@pytest.mark.parametrize("is_file", [True, False], ids=["file", "option"])
def test_start_ends_with_one_line(tmp_path, capsys, more, is_file):
    arguments = ["--data", str(tmp_path / "data"), *more]
    if is_file:
        file = tmp_path / "server.properties"
        file.write_text("listeners=SSL://127.0.0.1:0\nprincipal.builder.class=a.B\n")
        arguments += ["--config", str(file)]
    else:
        arguments += ["-o", "listeners=SSL://127.0.0.1:0", "-o", "principal.builder.class=a.B"]
    assert start_command.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("headrace: Cannot accept principal.builder.class: Headrace does not have this yet")
    assert not (tmp_path / "data").exists()


def test_a_process_ends_too(tmp_path):
    with pytest.raises(StartFailed, match=r"^headrace: Cannot accept zookeeper.ssl.crl.enable: .*\n$"):
        BrokerProcess(tmp_path, "--zookeeper", "127.0.0.1:1", "-o", "zookeeper.ssl.crl.enable=true")


def test_an_embedded_broker_raises_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ConfigError, match=r"authorizer\.class\.name"):
        Broker(config={"authorizer.class.name": "a.B"}).start()
    assert list(tmp_path.iterdir()) == []


# -- at run time


@pytest.fixture
def config():
    return BrokerConfig.load({"listeners": "PLAINTEXT://127.0.0.1:9092"})


@pytest.mark.parametrize("per_broker", [True, False])
@pytest.mark.parametrize("setting", REFUSED)
def test_a_refused_setting_cannot_be_stored(config, setting, per_broker):
    name, _, value = setting.partition("=")
    with pytest.raises(InvalidConfig, match="does not have this yet"):
        alter_broker({}, [(name, SET, value)], config, per_broker=per_broker)
    with pytest.raises(InvalidConfig, match="does not have this yet"):
        replace_broker([(name, value)], config, per_broker=per_broker)


def test_a_listener_on_which_nobody_could_log_in_cannot_be_added(config):
    for change in [
        ("listeners", APPEND, "SASL_SSL://127.0.0.1:1"),
        ("listener.security.protocol.map", SET, "PLAINTEXT:SASL_SSL"),
    ]:
        with pytest.raises(InvalidRequest, match=r"sasl\.enabled\.mechanisms"):
            alter_broker({}, [change], config, per_broker=True)


def test_the_answer_is_invalid_config_with_the_reason():
    with Broker() as broker, Client(broker.bootstrap_servers) as client:
        for resource in ("", str(broker.core.broker_id)):
            answer = client.alter(BROKER, resource, ("ssl.trustmanager.algorithm", SET, "Custom"))
            assert answer.error_code == ErrorCode.invalid_config
            assert "ssl.trustmanager.algorithm" in answer.error_message
            assert "does not have this yet" in answer.error_message
        value = client.configs(BROKER, "0", "ssl.trustmanager.algorithm")["ssl.trustmanager.algorithm"].value
        assert value == "PKIX"


def test_what_is_stored_already_is_not_in_force_but_shown_and_can_be_removed(config, caplog):
    """Apache Kafka stored it, or an older Headrace: the other settings are not to be lost by it."""
    stored = {
        "principal.builder.class": "a.B",
        "listener.name.x.ssl.trustmanager.algorithm": "Custom",
        "sasl.oauthbearer.client.anything": SECRET,
        "max.connections": "7",
    }
    config.apply_dynamic(stored, {"ssl.trustmanager.algorithm": "Other"})
    assert config.int("max.connections") == 7
    assert set(config.not_in_force) == {*stored, "ssl.trustmanager.algorithm"} - {"max.connections"}
    (line,) = caplog.messages
    assert all(name in line for name in config.not_in_force)
    assert "the broker does not use these stored settings" in line
    assert SECRET not in line

    entries = {str(entry["name"]): entry for entry in describe_broker(config, DescribeOptions(include_synonyms=True))}
    assert entries["principal.builder.class"]["config_source"] == 2
    assert entries["listener.name.x.ssl.trustmanager.algorithm"]["value"] == "Custom"
    assert SECRET not in str(entries)

    config.apply_dynamic(stored, {"ssl.trustmanager.algorithm": "Other"})
    assert len(caplog.messages) == 1, "it is said once"
    changed = alter_broker(stored, [("max.connections", SET, "8")], config, per_broker=True)
    assert changed == {**stored, "max.connections": "8"}
    name = "principal.builder.class"
    assert name not in alter_broker(stored, [(name, DELETE, None)], config, per_broker=True)


# -- what somebody else has put into the tree


@pytest.fixture
def tree():
    return TreeHost(ManualClock())


@pytest.mark.parametrize(
    ("path", "warning"),
    [
        ("/kafka-acl/Topic/orders", "ZooKeeper has ACLs (/kafka-acl/Topic/orders)"),
        ("/kafka-acl-extended/prefixed/Group/a", "ZooKeeper has ACLs (/kafka-acl-extended/prefixed/Group/a)"),
        ("/headrace/acls/literal/Group:a%2Fb", "ZooKeeper has ACLs (/headrace/acls/literal/Group:a%2Fb)"),
        ("/kafka-acl/Topic", None),
    ],
)
async def test_rules_in_the_tree_that_nobody_enforces(tree, caplog, path, warning):
    coordination = LocalCoordination(tree)
    await coordination.create(path, make_parents=True)
    await warn_of_unenforced_rules(coordination)
    if warning is None:
        assert caplog.messages == []
    else:
        (line,) = caplog.messages
        assert warning in line
        assert "enforces none" in line
