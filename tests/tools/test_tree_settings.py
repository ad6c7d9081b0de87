"""The settings of ``headrace zookeeper`` in ZooKeeper's names, and the errors of its command."""

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest
import trustme

from headrace.coordination.server.four_letter_words import FOUR_LETTER_WORDS
from headrace.properties import ConfigError
from headrace.testing.broker_process import BrokerProcess
from headrace.tools import zookeeper
from headrace.tools.shared.tree_settings import SETTINGS, SUPER_DIGEST, TreeSettings

GUIDE = Path(__file__).parents[2] / "docs" / "zookeeper.md"


def test_a_zoo_cfg():
    settings = TreeSettings.from_properties(
        {
            "dataDir": "/var/lib/zookeeper",
            "clientPort": "2181",
            "secureClientPort": "2182",
            "secureClientPortAddress": "10.0.0.1",
            "tickTime": "500",
            "initLimit": "5",
            "4lw.commands.whitelist": "*",
            f"zookeeper.{SUPER_DIGEST}": "super:hash",
            "authProvider.x509": "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
        }
    )
    assert settings == TreeSettings(
        Path("/var/lib/zookeeper"),
        ("", 2181),
        ("10.0.0.1", 2182),
        500,
        "super:hash",
        four_letter_words=frozenset(FOUR_LETTER_WORDS),
    )
    assert "hash" not in repr(settings)
    assert TreeSettings.from_properties({"ssl.keyStore.location": ""}) == TreeSettings()


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("requireClientAuthScheme=sasl", "requireClientAuthScheme: not a setting"),
        ("authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider", "authProvider.sasl: not a"),
        ("authProvider.x509=com.example.Mine", "is not supported"),
        ("ssl.crl=true", "ssl.crl=true is not supported"),
        ("ssl.ocsp=true", "ssl.ocsp=true is not supported"),
        ("clientPort=70000", "must be between 0 and 65535"),
        ("maxClientCnxns=many", "must be between 0 and"),
        ("tickTime=0", "must be between 1 and"),
        ("4lw.commands.whitelist=ruok, dump", "dump: not a word that the server has; there are ruok, isro"),
        (f"{SUPER_DIGEST}=super", "is not USER:HASH"),
        ("ssl.keyStore.location=/no/such.pem", "/no/such.pem"),
        ("ssl.keyStore.location=/no/such", "cannot be seen from its name; set ssl.keyStore.type"),
        ("ssl.keyStore.location=/no/such.jks\nssl.keyStore.passwordPath=/no/file", "Cannot read ssl.keyStore.p"),
        ("ssl.keyStore.location=/no/such.jks\nssl.keyStore.passwordPath=/dev/null", "(/dev/null): it is empty"),
        ("ssl.keyStore.location=/no/such.pem\nssl.clientAuth=maybe", "must be need, want or none"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_one_line(setting, said, tmp_path, capsys):
    properties = dict(line.split("=", 1) for line in setting.splitlines())
    with pytest.raises(ConfigError) as refused:
        TreeSettings.from_properties(properties)
    assert said in str(refused.value)
    (tmp_path / "zoo.cfg").write_text(setting)
    assert zookeeper.main(["--config", str(tmp_path / "zoo.cfg"), "--data", str(tmp_path / "data")]) == 2
    complaint = capsys.readouterr().err
    assert said in complaint
    assert complaint.count("\n") == 1
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(("client_auth", "warns"), [("need", True), ("want", True), ("none", False)])
def test_a_server_that_trusts_the_authorities_of_the_system_warns(tmp_path, caplog, client_auth, warns):
    store = tmp_path / "server.pem"
    trustme.CA().issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(store)
    settings = {"ssl.keyStore.location": str(store), "ssl.clientAuth": client_auth}
    TreeSettings.from_properties(settings)
    assert len([line for line in caplog.messages if "there is no trust store" in line]) == warns
    caplog.clear()
    TreeSettings.from_properties({**settings, "ssl.trustStore.location": str(store)})
    assert caplog.messages == []


def test_tls_needs_a_key_store(tmp_path, capsys):
    assert zookeeper.main(["--secure-listen", "127.0.0.1:0", "--data", str(tmp_path / "data")]) == 2
    assert capsys.readouterr().err == "headrace: a port with TLS needs a key store: set ssl.keyStore.location\n"


def test_the_guide_lists_all_settings():
    guide = GUIDE.read_text()
    for name, meaning in SETTINGS.items():
        assert f"| `{name}` | {meaning} |" in guide


def test_an_address_has_a_limited_number_of_connections(tmp_path):
    with BrokerProcess(tmp_path, "-o", "maxClientCnxns=2", command="zookeeper") as server:
        host, _, port = server.address.rpartition(":")
        with ExitStack() as stack:
            first, second, third = (
                stack.enter_context(socket.create_connection((host, int(port)), 20)) for _ in range(3)
            )
            assert third.recv(1) == b""
            first.sendall(b"srvr")
            assert first.recv(4) == b"Zook"
            second.close()
        with socket.create_connection((host, int(port)), 20) as later:
            later.sendall(b"srvr")
            assert later.recv(4) == b"Zook"
        assert "maxClientCnxns" in server.log
