"""Secrets in settings appear nowhere: not in the log, not in files, not in answers, not in errors of the start.

Every secret of these tests contains the word ``canary``.
"""

import ssl

import pytest
from broker_harness import BROKER, TOPIC, Client
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509 import load_pem_x509_certificate

from certificates import certificate
from headrace import Broker
from headrace.broker.configs.broker_config import BrokerConfig
from headrace.broker.configs.keys import ConfigType
from headrace.broker.configs.registry import BROKER_KEYS
from headrace.broker.start_error import StartError
from headrace.protocol.api import Api
from headrace.testing.broker_process import BrokerProcess
from headrace.testing.raw_client import RawClient
from headrace.tools.start import command as start_command

SET, APPEND = 0, 2
CANARY = "canary"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
PASSWORDS = [name for name, key in BROKER_KEYS.items() if key.type is ConfigType.PASSWORD]


def secret_settings(folder):
    """A broker with three listeners, and a secret wherever a secret can be."""
    own = certificate()
    encryption = BestAvailableEncryption(b"canary-store")
    issuer = load_pem_x509_certificate(own.issuer.encode())
    chain, key = load_pem_x509_certificate(own.chain.encode()), load_pem_private_key(own.key.encode(), None)
    (folder / "keys.p12").write_bytes(serialize_key_and_certificates(b"own", key, chain, [issuer], encryption))
    (folder / "trust.p12").write_bytes(serialize_key_and_certificates(None, None, None, [issuer], encryption))
    return {
        "listeners": "SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "ssl.keystore.location": folder / "keys.p12",
        "ssl.keystore.password": "canary-store",
        "ssl.key.password": "canary-store",
        "ssl.truststore.location": folder / "trust.p12",
        "ssl.truststore.password": "canary-store",
        "listener.name.ssl.ssl.key.password": "canary-store",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN} user_alice="canary-alice";',
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": f"{SCRAM};",
        "listener.name.other.scram-sha-512.sasl.jaas.config": f'{SCRAM} username="x" password="canary-other";',
        "delegation.token.secret.key": "canary-token",
        "password.encoder.secret": "canary-encoder",
        "password.encoder.old.secret": "canary-old",
        "my.own.secret": "canary-unknown",
        "listener.name.ssl.my.secret": "canary-unknown",
    }


class RecordingClient(Client):
    """Keeps everything that the broker has answered."""

    answers: list[bytes] = []  # noqa: RUF012  of all clients of the module

    def read_frame(self):
        frame = super().read_frame()
        self.answers.append(bytes(frame))
        return frame


def make_errors(addresses):
    """Sends requests that fail, with secrets in them and around them."""
    with RecordingClient(addresses["PLAINTEXT"]) as admin:
        admin.ask(Api.DESCRIBE_CONFIGS, 4, **everything(BROKER, "0"))
        names = [*PASSWORDS, *(f"listener.name.ssl.{name}" for name in PASSWORDS)]
        for name in names:
            admin.alter(BROKER, "0", (name, SET, "canary-dynamic"))
            admin.alter(BROKER, "", (name, SET, "canary-dynamic"))
            admin.alter(BROKER, "0", (name, APPEND, "canary-dynamic"))
            admin.alter(TOPIC, "none", (name, SET, "canary-dynamic"))
            admin.alter(BROKER, "0", (name, 17, "canary-dynamic"))
        configs = [{"name": name, "value": "canary-dynamic"} for name in names]
        resource = {"resource_type": BROKER, "resource_name": "0", "configs": configs}
        admin.ask(Api.ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
        stored = ("listener.name.other.ssl.keystore.password", SET, "canary-dynamic")
        assert admin.alter(BROKER, "0", stored).error_code == 0
        admin.ask(Api.DESCRIBE_CONFIGS, 4, **everything(BROKER, "0"))
    for mechanism, token in (("PLAIN", b"\0alice\0canary-wrong"), ("PLAIN", b"canary"), ("SCRAM-SHA-256", b"canary")):
        with RecordingClient(addresses["SASL_PLAINTEXT"]) as client:
            client.ask(Api.SASL_HANDSHAKE, 1, mechanism=mechanism)
            assert client.ask(Api.SASL_AUTHENTICATE, 1, auth_bytes=token).error_code != 0
    with RecordingClient(addresses["SASL_PLAINTEXT"]) as client:
        client.ask(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        assert client.ask(Api.SASL_AUTHENTICATE, 1, auth_bytes=b"\0alice\0canary-alice").error_code == 0
    with RawClient(addresses["SSL"]) as client:
        client.send_bytes(b"canary, and no TLS at all" * 10)
        client.is_closed_by_peer()
    context = ssl.create_default_context()
    with RawClient(addresses["SSL"]) as client, pytest.raises(ssl.SSLError):
        context.wrap_socket(client.socket, server_hostname="localhost")


def everything(kind, name):
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    return {"resources": [resource], "include_synonyms": True, "include_documentation": True}


def test_a_running_broker_shows_no_secret(tmp_path):
    settings = secret_settings(tmp_path)
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    data = tmp_path / "data"
    with BrokerProcess(data, "--config", str(file), "--log-level", "debug", listen=None) as process:
        lines = [process.address, *(process._process.stdout.readline().split()[1] for _ in range(2))]
        make_errors(dict(zip(("SSL", "SASL_PLAINTEXT", "PLAINTEXT"), lines, strict=True)))
        assert process.terminate() == 0
        assert "my.own.secret" in process.log, "the log names settings"
        assert CANARY not in process.log
    files = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    assert any(b"encryptedPassword" in content for content in files.values())
    assert [path for path, content in files.items() if CANARY.encode() in content] == []
    assert len(RecordingClient.answers) > 100
    assert [frame for frame in RecordingClient.answers if CANARY.encode() in frame] == []


def test_an_object_shows_no_secret(tmp_path):
    settings = {name: str(value) for name, value in secret_settings(tmp_path).items()}
    config = BrokerConfig.load(settings)
    with Broker(config=settings) as broker:
        shown = (config, config._layers, broker, broker.core, broker.core.listeners, config.of_listener("SSL"))
        assert CANARY not in "".join(map(repr, shown))
        tls = next(listener._tls for listener in broker.core.listeners if listener._tls is not None)
        assert CANARY not in repr(tls)
        assert "PRIVATE KEY" not in repr(tls)


@pytest.mark.parametrize(
    "prefix", ["", "listener.name.ssl.", "listener.name.sasl_plaintext.plain.", "listener.name.a.b."]
)
@pytest.mark.parametrize("name", [*PASSWORDS, "my.secret", "ssl.keystore.pasword", "sasl.oauthbearer.x.secret"])
def test_a_start_that_fails_shows_no_secret(tmp_path, capsys, caplog, prefix, name):
    wrong = ["-o", f"{prefix}{name}=canary\\u00e4", "-o", "num.partitions=none", "-o", "log.dirs="]
    assert start_command.main(["--data", str(tmp_path), *wrong]) == 2
    printed = capsys.readouterr()
    assert "headrace: " in printed.err
    assert CANARY not in printed.out + printed.err + caplog.text


@pytest.mark.parametrize("option", ["canary", "=canary", "ssl.key.password canary"])
def test_an_option_without_a_name_is_not_shown(tmp_path, capsys, option):
    assert start_command.main(["--data", str(tmp_path), "-o", option]) == 2
    printed = capsys.readouterr()
    assert "-o number 1" in printed.err
    assert CANARY not in printed.err


def test_errors_of_stores_show_no_secret(tmp_path):
    settings = {name: str(value) for name, value in secret_settings(tmp_path).items()}
    for name in ("ssl.keystore.password", "ssl.truststore.password", "listener.name.ssl.ssl.key.password"):
        with pytest.raises(StartError) as failure:
            Broker(config={**settings, name: "canary-wrong"}).start()
        assert "password" in str(failure.value)
        chain, error = [], failure.value
        while error is not None:
            chain.append(repr(error))
            error = error.__cause__ or error.__context__
        assert CANARY not in "".join(chain)


def test_the_help_says_who_sees_an_option():
    assert "list of processes" in " ".join(start_command.parser().format_help().split())
