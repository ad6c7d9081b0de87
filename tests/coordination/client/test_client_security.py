"""A client's login at ZooKeeper, the settings for it, and the access control lists of the znodes that it creates."""

import asyncio
import uuid
from importlib.util import find_spec

import pytest
from kazoo.client import KazooClient

from headrace.coordination.client.client_security import SETTINGS, ClientSecurity
from headrace.coordination.client.zookeeper_client import ZookeeperCoordination
from headrace.coordination.interface import AuthFailedError, Create, InvalidAclError, NoAuthError
from headrace.coordination.kafka_acls import kafka_acl
from headrace.properties import ConfigError
from headrace.testing.broker_process import BrokerProcess, StartFailed
from headrace.testing.zookeeper_process import ZookeeperMissing, ZookeeperProcess

SECRET = "s3cret"
LOGIN = {"headrace.zookeeper.login": f"kafka:{SECRET}"}
ALICE = ClientSecurity.from_settings({**LOGIN, "zookeeper.set.acl": True})
PATIENCE_S = 20


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"headrace.zookeeper.login": "kafka"}, "headrace.zookeeper.login does not have the form USER:PASSWORD"),
        ({"headrace.zookeeper.login": f":{SECRET}"}, "does not have the form"),
        ({"headrace.zookeeper.login.file": "/no/such/file"}, "Cannot read headrace.zookeeper.login.file"),
        ({**LOGIN, "headrace.zookeeper.login.file": "f"}, "set only one of"),
        ({**LOGIN, "headrace.zookeeper.login.scheme": "kerberos"}, "must be digest or sasl"),
        ({"zookeeper.set.acl": "true"}, "zookeeper.set.acl=true needs an identity"),
        ({"zookeeper.set.acl": "perhaps"}, "must be true or false"),
        ({"zookeeper.ssl.client.enable": True, "zookeeper.ssl.crl.enable": True}, "crl.enable=true is not supported"),
        ({"zookeeper.ssl.client.enable": True, "zookeeper.ssl.ocsp.enable": "true"}, "ocsp.enable=true is not"),
        (
            {
                "zookeeper.ssl.client.enable": True,
                "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNIO",
            },
            "TLS needs org.apache.zookeeper.ClientCnxnSocketNetty",
        ),
        ({"zookeeper.ssl.client.enable": True, "zookeeper.ssl.keystore.location": "/a/store"}, "keystore.type"),
        ({"zookeeper.ssl.client.enable": True, "zookeeper.ssl.truststore.location": "/a/b.jks"}, "/a/b.jks"),
        ({"zookeeper.ssl.client.enable": True, "zookeeper.ssl.protocol": "SSLv3"}, "SSLv3"),
        ({"zookeeper.ssl.client.enable": True, "zookeeper.ssl.endpoint.identification.algorithm": "x"}, "https"),
    ],
)
def test_settings_that_cannot_be_used_are_one_line(settings, said):
    with pytest.raises(ConfigError) as refused:
        ClientSecurity.from_settings(settings)
    assert said in str(refused.value)
    assert SECRET not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_secrets_are_not_shown(tmp_path):
    (tmp_path / "login").write_text(f"kafka:{SECRET}\n")
    security = ClientSecurity.from_settings({"headrace.zookeeper.login.file": str(tmp_path / "login")})
    assert security.login == f"kafka:{SECRET}"
    assert SECRET not in repr(security)
    (tmp_path / "login").write_text("x" * 10_000)
    with pytest.raises(ConfigError, match="more than"):
        ClientSecurity.from_settings({"headrace.zookeeper.login.file": str(tmp_path / "login")})


def test_nothing_is_set_by_default():
    assert ClientSecurity.from_settings(dict.fromkeys(SETTINGS)) == ClientSecurity()
    # As in Kafka, stores alone do not turn TLS on.
    assert ClientSecurity.from_settings({"zookeeper.ssl.truststore.location": "/no/such.pem"}).tls is None


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/brokers/topics/orders", [("auth", 31), ("world", 1)]),
        ("/kafka-acl/Topic/orders", [("auth", 31), ("world", 1)]),
        ("/config/topics/orders", [("auth", 31), ("world", 1)]),
        ("/config/users", [("auth", 31)]),
        ("/config/users/alice", [("auth", 31)]),
        ("/config/brokers/1", [("auth", 31)]),
        ("/delegation_token/tokens/abc", [("auth", 31)]),
        ("/delegation_token", [("auth", 31), ("world", 1)]),
        ("/consumers", [("world", 31)]),
        ("/consumers/old", [("auth", 31), ("world", 1)]),
    ],
)
def test_lists_are_those_of_kafka(path, expected):
    assert [(entry.scheme, entry.permissions) for entry in kafka_acl(path)] == expected


def acl_in(address, path):
    client = KazooClient(address, auth_data=[("digest", f"kafka:{SECRET}")])
    client.start(PATIENCE_S)
    try:
        return [(entry.id.scheme, entry.perms) for entry in client.get_acls(path)[0]]
    finally:
        client.stop()
        client.close()


async def connect(address, security):
    return await ZookeeperCoordination.connect(address, security=security)


async def test_new_znodes_are_protected(remote):
    chroot = f"/set-acl-{uuid.uuid4().hex}/kafka"
    address = remote.address + chroot
    alice, eve = await connect(address, ALICE), await connect(address, ClientSecurity(login="eve:x"))
    try:
        await alice.create("/brokers/ids", make_parents=True)
        await alice.create("/brokers/ids/1", b"x", ephemeral=True)
        await alice.multi([Create("/config"), Create("/config/users"), Create("/config/users/bob", b"hash")])
        await alice.create("/consumers")
        for path, expected in (
            (chroot, [("digest", 31), ("world", 1)]),
            (f"{chroot}/brokers/ids/1", [("digest", 31), ("world", 1)]),
            (f"{chroot}/config/users/bob", [("digest", 31)]),
            (f"{chroot}/consumers", [("world", 31)]),
        ):
            assert await asyncio.to_thread(acl_in, remote.address, path) == expected, path
        assert (await eve.get("/brokers/ids/1"))[0] == b"x"
        for attempt in (
            eve.get("/config/users/bob"), eve.children("/config/users"), eve.set("/brokers/ids/1", b""),
            eve.delete("/brokers/ids/1"), eve.create("/brokers/ids/2"), eve.multi([Create("/a")]),
        ):  # fmt: skip
            with pytest.raises(NoAuthError, match="does not permit"):
                await attempt
        assert (await alice.get("/config/users/bob"))[0] == b"hash"
    finally:
        await alice.close()
        await eve.close()


async def test_a_login_is_repeated_on_a_new_connection(served_harness):
    client = await served_harness.client(security=ALICE)
    await client.create("/config/users", make_parents=True)
    served_harness.proxy(client).cut()
    served_harness.proxy(client).mend()
    assert (await client.get("/config/users"))[0] == b""
    await client.set("/config/users", b"x")


async def test_lists_need_a_login_that_the_server_knows(remote):
    # "auth" is nobody for a server that has no identity of this client.
    client = await connect(remote.address, ClientSecurity(sets_acls=True))
    try:
        with pytest.raises(InvalidAclError, match="rejects the access control list"):
            await client.create(f"/{uuid.uuid4().hex}")
    finally:
        await client.close()


def test_a_broker_without_identity_does_not_start(tmp_path):
    with pytest.raises(StartFailed, match=r"^headrace: zookeeper.set.acl=true needs an identity: .*\n$"):
        BrokerProcess(tmp_path, "--zookeeper", "127.0.0.1:1", "-o", "zookeeper.set.acl=true")


# SASL


@pytest.fixture(scope="module")
def sasl_zookeeper(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sasl")
    jaas = folder / "jaas.conf"
    jaas.write_text(f'Server {{ org.apache.zookeeper.server.auth.DigestLoginModule required user_kafka="{SECRET}"; }};')
    settings = {"authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
    try:
        process = ZookeeperProcess(
            folder, settings=settings, java_options=[f"-Djava.security.auth.login.config={jaas}"]
        )
    except ZookeeperMissing as error:
        pytest.skip(str(error))
    with process:
        yield process


@pytest.mark.skipif(find_spec("puresasl") is None, reason="pure-sasl is not installed")
@pytest.mark.xdist_group("zookeeper")
async def test_sasl_digest_md5(sasl_zookeeper):
    settings = {**LOGIN, "headrace.zookeeper.login.scheme": "sasl", "zookeeper.set.acl": "true"}
    client = await connect(f"{sasl_zookeeper.address}/sasl", ClientSecurity.from_settings(settings))
    try:
        await client.create("/config/users", b"x", make_parents=True)
        assert (await client.get("/config/users"))[0] == b"x"
    finally:
        await client.close()
    eve = await connect(f"{sasl_zookeeper.address}/sasl", ClientSecurity())
    try:
        with pytest.raises(NoAuthError):
            await eve.get("/config/users")
    finally:
        await eve.close()
    wrong = {**settings, "headrace.zookeeper.login": "kafka:wrong"}
    with pytest.raises(AuthFailedError, match="rejects our login"):
        await connect(sasl_zookeeper.address, ClientSecurity.from_settings(wrong))


def test_sasl_without_its_package_is_one_line(monkeypatch):
    monkeypatch.setattr("headrace.coordination.client.client_security.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match="needs the package pure-sasl; run pip install"):
        ClientSecurity.from_settings({**LOGIN, "headrace.zookeeper.login.scheme": "sasl"})
