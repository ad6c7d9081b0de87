"""Key and trust stores of a running broker: replaced by AlterConfigs, reloaded from changed files, refused."""

import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import trustme
from broker_harness import BROKER, Client
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12Certificate,
    serialize_java_truststore,
    serialize_key_and_certificates,
)
from cryptography.x509 import load_pem_x509_certificate

from certificates import certificate
from headrace import Broker
from headrace.broker.configs.broker_config import BrokerConfig
from headrace.broker.configs.listeners import SecurityProtocol
from headrace.broker.network.listener_tls import ListenerTls
from headrace.broker.start_error import StartError
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.security.tls import loaded_stores
from headrace.testing.broker_process import BrokerProcess, StartFailed
from headrace.testing.raw_client import RawClient
from tls_harness import AUTHORITY, TlsRawClient, client_context, pem_of, tls_config

SET, DELETE = 0, 1
PREFIX = "listener.name.external."
STRANGER = trustme.CA(organization_name="stranger")


class TlsClient(Client, TlsRawClient):
    """Sends admin requests over TLS."""


def write_store(path, certificate, authority=AUTHORITY):
    """Writes a key store and, beside it, a trust store. Each is replaced in one step."""
    key, chain = pem_of(certificate)
    for name, text in (("keys.pem", key + chain), ("trust.pem", authority.cert_pem.bytes().decode())):
        (path / "new").write_text(text)
        (path / "new").replace(path / name)


@contextmanager
def two_listeners(path, **others):
    """A broker with a TLS listener for clients, whose stores are files, and a plain one between brokers."""
    write_store(path, issue())
    config = {
        "listeners": "EXTERNAL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "listener.security.protocol.map": "EXTERNAL:SSL,PLAINTEXT:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        f"{PREFIX}ssl.keystore.type": "PEM",
        f"{PREFIX}ssl.keystore.location": path / "keys.pem",
        f"{PREFIX}ssl.truststore.type": "PEM",
        f"{PREFIX}ssl.truststore.location": path / "trust.pem",
        **others,
    }
    with Broker(data=path / "data", config=config) as broker:
        host, port = broker.core.endpoints["PLAINTEXT"]
        with Client(f"{host}:{port}") as admin:
            yield broker, admin


def address(broker, listener="EXTERNAL"):
    host, port = broker.core.endpoints[listener]
    return f"{host}:{port}"


def certificate_of(broker, listener="EXTERNAL"):
    with TlsRawClient(address(broker, listener)) as client:
        return client.socket.getpeercert(binary_form=True)


def alter(admin, *changes):
    answer = admin.alter(BROKER, "0", *changes)
    return answer.error_code, answer.error_message or ""


def issue(authority=AUTHORITY, unit="broker"):
    """Issues a certificate for this host. trustme would give each one another distinguished name."""
    return authority.issue_cert("localhost", "127.0.0.1", organization_unit_name=unit)


def is_answered(client):
    return client.ask(Api.API_VERSIONS, 0).error_code == 0


def test_the_same_location_again_reloads_a_changed_file(tmp_path):
    with two_listeners(tmp_path) as (broker, admin), TlsRawClient(address(broker)) as early:
        first = certificate_of(broker)
        write_store(tmp_path, issue())
        assert certificate_of(broker) == first, "nobody has asked for the new file"
        location = f"{PREFIX}ssl.keystore.location"
        assert alter(admin, (location, SET, str(tmp_path / "keys.pem"))) == (0, "")
        second = certificate_of(broker)
        assert second != first
        assert alter(admin, (location, SET, str(tmp_path / "keys.pem"))) == (0, "")
        assert certificate_of(broker) == second
        assert is_answered(early), "open connections stay"


def test_other_clients_are_served_while_stores_are_read(tmp_path, monkeypatch):
    """A PKCS12 store with many iterations takes a second. The loop does not wait for it, and no change is lost."""
    is_reading, may_go_on, readers = threading.Event(), threading.Event(), set()
    load_key_store = loaded_stores.load_key_store

    def slow_load(options):
        readers.add(threading.current_thread().name)
        is_reading.set()
        assert may_go_on.wait(20)
        return load_key_store(options)

    with two_listeners(tmp_path) as (broker, admin), Client(address(broker, "PLAINTEXT")) as other:
        first = certificate_of(broker)
        write_store(tmp_path, issue())
        monkeypatch.setattr(loaded_stores, "load_key_store", slow_load)
        with ThreadPoolExecutor(2) as pool:
            location = (f"{PREFIX}ssl.keystore.location", SET, str(tmp_path / "keys.pem"))
            altering = pool.submit(alter, admin, location)
            try:
                assert is_reading.wait(20)
                assert is_answered(other), "the loop is free"
                assert not altering.done()
                second = pool.submit(alter, other, ("log.cleaner.threads", SET, "2"))
            finally:
                may_go_on.set()
            assert altering.result(20) == second.result(20) == (0, "")
        assert certificate_of(broker) != first
        assert all(name.startswith("headrace-io") for name in readers)
        stored = broker.core.config.dynamic_broker
        assert stored.keys() == {f"{PREFIX}ssl.keystore.location", "log.cleaner.threads"}


def test_another_location_is_used_by_new_handshakes_and_after_a_restart(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    write_store(other, issue(unit="other"))
    with two_listeners(tmp_path, **{"ssl.allow.dn.changes": "true"}) as (broker, admin):
        first = certificate_of(broker)
        assert alter(admin, (f"{PREFIX}ssl.keystore.location", SET, str(other / "keys.pem"))) == (0, "")
        second = certificate_of(broker)
        assert second != first
    # Without ssl.allow.dn.changes: the first stores of a start are compared with nothing.
    with two_listeners(tmp_path) as (broker, admin):
        assert certificate_of(broker) == second
        code, message = alter(admin, (f"{PREFIX}ssl.keystore.location", DELETE, None))
        assert code == ErrorCode.invalid_request
        assert "distinguished name" in message
        assert certificate_of(broker) == second


def test_keys_in_the_settings_replace_others_and_are_stored_encrypted(tmp_path):
    config = tls_config(certificate=issue(), password_encoder_secret="the secret of the tests")
    key, chain = pem_of(issue())
    prefix = "listener.name.ssl."
    changes = [(f"{prefix}ssl.keystore.key", SET, key), (f"{prefix}ssl.keystore.certificate.chain", SET, chain)]
    with Broker(data=tmp_path, config=config) as broker, TlsClient(broker.bootstrap_servers) as admin:
        first = certificate_of(broker, "SSL")
        code, message = alter(admin, changes[0])
        assert code == ErrorCode.invalid_request
        assert "does not belong to the first certificate" in message
        assert alter(admin, *changes) == (0, "")
        second = certificate_of(broker, "SSL")
        assert second != first
        shown = admin.configs(BROKER, "0")[f"{prefix}ssl.keystore.key"]
        assert (shown.value, shown.is_sensitive) == (None, True)
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert any(b"encryptedPassword" in content for content in files)
    secret = key.splitlines()[1].encode()
    assert not any(secret in content for content in files)
    with Broker(data=tmp_path, config=config) as broker:
        assert certificate_of(broker, "SSL") == second


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (f"{PREFIX}ssl.keystore.location", "/no/such/file", "No such file"),
        (f"{PREFIX}ssl.truststore.location", "/no/such/file", "No such file"),
        (f"{PREFIX}ssl.keystore.type", "PKCS12", "ssl.keystore.password is not"),
        (f"{PREFIX}ssl.key.password", "canary", "is not encrypted"),
        ("ssl.keystore.location", "/x", "only per-listener using the listener prefix: ssl.keystore.location"),
        (f"{PREFIX}ssl.client.auth", "required", "restart the broker: listener.name.external.ssl.client.auth"),
        (f"{PREFIX}ssl.cipher.suites", "TLS_AES_128_GCM_SHA256", "restart the broker"),
        ("ssl.client.auth", "required", "restart the broker: ssl.client.auth"),
        (f"{PREFIX}plain.sasl.jaas.config", "canary", "restart the broker"),
        ("ssl.principal.mapping.rules", "DEFAULT", "Cannot update these configs dynamically"),
        ("password.encoder.secret", "canary", "Cannot update these configs dynamically"),
    ],
)
def test_what_cannot_replace_is_refused(tmp_path, name, value, message):
    with two_listeners(tmp_path) as (broker, admin):
        first = certificate_of(broker)
        code, said = alter(admin, (name, SET, value))
        assert code == ErrorCode.invalid_request
        assert message in said
        assert "canary" not in said
        assert "\n" not in said
        assert certificate_of(broker) == first
        stored = admin.configs(BROKER, "0")
        assert name not in stored or stored[name].config_source != 2


def test_stores_belong_to_one_broker(tmp_path):
    with two_listeners(tmp_path) as (_, admin):
        answer = admin.alter(BROKER, "", (f"{PREFIX}ssl.keystore.location", SET, "/x"))
        assert answer.error_code == ErrorCode.invalid_request
        assert "name a broker" in answer.error_message


def test_a_password_without_a_secret_is_refused(tmp_path):
    with two_listeners(tmp_path) as (_, admin):
        # A listener that does not exist: nothing but the missing secret is wrong.
        code, message = alter(admin, ("listener.name.other.ssl.key.password", SET, "canary"))
        assert code == ErrorCode.invalid_request
        assert "Password encoder secret not configured" in message
        assert "canary" not in message


def test_another_distinguished_name_is_refused(tmp_path):
    with two_listeners(tmp_path) as (broker, admin):
        first = certificate_of(broker)
        write_store(tmp_path, issue(unit="other"))
        code, message = alter(admin, (f"{PREFIX}ssl.keystore.location", SET, str(tmp_path / "keys.pem")))
        assert code == ErrorCode.invalid_request
        assert "distinguished name" in message
        assert certificate_of(broker) == first


def test_a_trust_store_that_has_changed_counts_for_new_clients(tmp_path):
    settings = {f"{PREFIX}ssl.client.auth": "required"}
    with two_listeners(tmp_path, **settings) as (broker, admin):
        stranger = client_context(STRANGER.issue_cert("client"))
        with (
            pytest.raises((ssl.SSLError, OSError, EOFError)),
            TlsRawClient(address(broker), context=stranger) as client,
        ):
            is_answered(client)
        (tmp_path / "trust.pem").write_bytes(STRANGER.cert_pem.bytes())
        assert alter(admin, (f"{PREFIX}ssl.truststore.location", SET, str(tmp_path / "trust.pem"))) == (0, "")
        with TlsRawClient(address(broker), context=stranger) as client:
            assert is_answered(client)


def test_stores_of_another_type_replace_others(tmp_path):
    """ssl.keystore.type and .password, ssl.key.password, ssl.truststore.type and .password"""

    def loaded(issued):
        key, chain = pem_of(issued)
        return load_pem_private_key(key.encode(), None), load_pem_x509_certificate(chain.encode())

    def changed(**values):
        return [(f"{PREFIX}ssl.{name.replace('_', '.')}", SET, str(value)) for name, value in values.items()]

    encrypted = BestAvailableEncryption(b"canary")
    settings = {"password.encoder.secret": "s", f"{PREFIX}ssl.client.auth": "requested"}
    with two_listeners(tmp_path, **settings) as (broker, admin):
        key, own = loaded(issue())
        (tmp_path / "keys.p12").write_bytes(serialize_key_and_certificates(b"own", key, own, None, encrypted))
        keys = changed(keystore_type="PKCS12", keystore_location=tmp_path / "keys.p12", keystore_password="canary")
        assert alter(admin, *keys) == (0, "")
        assert certificate_of(broker) == own.public_bytes(Encoding.DER)

        key, own = loaded(issue())
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encrypted) + own.public_bytes(Encoding.PEM)
        (tmp_path / "secret.pem").write_bytes(pem)
        keys = changed(keystore_type="PEM", keystore_location=tmp_path / "secret.pem", key_password="canary")
        assert alter(admin, *keys, (f"{PREFIX}ssl.keystore.password", DELETE, None)) == (0, "")
        assert certificate_of(broker) == own.public_bytes(Encoding.DER)

        context = client_context(STRANGER.issue_cert("client"))
        with pytest.raises((ssl.SSLError, OSError, EOFError)), TlsRawClient(address(broker), context=context) as client:
            is_answered(client)
        stranger = load_pem_x509_certificate(STRANGER.cert_pem.bytes())
        trusted = serialize_java_truststore([PKCS12Certificate(stranger, b"stranger")], encrypted)
        (tmp_path / "trust.p12").write_bytes(trusted)
        location = tmp_path / "trust.p12"
        trust = changed(truststore_type="PKCS12", truststore_location=location, truststore_password="canary")
        assert alter(admin, *trust) == (0, "")
        with TlsRawClient(address(broker), context=context) as client:
            assert is_answered(client)


class TestBetweenBrokers:
    def test_brokers_with_old_and_new_stores_must_trust_each_other(self, tmp_path):
        write_store(tmp_path, issue())
        config = {
            "listeners": "EXTERNAL://127.0.0.1:0",
            "listener.security.protocol.map": "EXTERNAL:SSL",
            "inter.broker.listener.name": "EXTERNAL",
            f"{PREFIX}ssl.keystore.type": "PEM",
            f"{PREFIX}ssl.keystore.location": tmp_path / "keys.pem",
            f"{PREFIX}ssl.truststore.type": "PEM",
            f"{PREFIX}ssl.truststore.location": tmp_path / "trust.pem",
        }
        with Broker(config=config) as broker, TlsClient(broker.bootstrap_servers) as admin:
            first = certificate_of(broker)
            write_store(tmp_path, issue(STRANGER), STRANGER)
            location = (f"{PREFIX}ssl.keystore.location", SET, str(tmp_path / "keys.pem"))
            code, message = alter(admin, location)
            assert code == ErrorCode.invalid_request
            assert "the trust store must trust" in message
            assert certificate_of(broker) == first
            write_store(tmp_path, issue())
            assert alter(admin, location) == (0, "")
            assert certificate_of(broker) != first

    def test_a_broker_that_does_not_trust_itself_does_not_start(self):
        config = {**tls_config(), "ssl.truststore.certificates": STRANGER.cert_pem.bytes().decode()}
        with pytest.raises(StartError, match="listener SSL: A broker with these stores could not connect to itself"):
            Broker(config=config).start()


# -- at the start


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ssl.keystore.key": "canary"}, "Cannot use ssl.keystore.key: it has no PRIVATE KEY entry"),
        ({"ssl.key.password": "canary"}, "is not encrypted"),
        ({"ssl.keystore.type": "JKS"}, "needs ssl.keystore.type=PEM"),
        ({"ssl.truststore.certificates": "canary"}, "it has no CERTIFICATE entry"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "must be a list of TLSv1.2, TLSv1.3"),
        ({"ssl.cipher.suites": "X"}, "not a cipher suite"),
        ({"ssl.principal.mapping.rules": "RULE:(/x/"}, "is no pattern of RE2"),
        ({"ssl.keystore.key": pem_of(AUTHORITY.issue_cert("other"))[0]}, "does not belong to the first certificate"),
    ],
)
def test_a_broker_that_cannot_use_its_stores_does_not_start(settings, message):
    with pytest.raises(StartError, match="cannot use TLS on listener SSL") as failure:
        Broker(config={**tls_config(), **settings}).start()
    assert message in str(failure.value)
    assert "canary" not in str(failure.value)
    assert "\n" not in str(failure.value)


def test_a_process_ends_with_one_line(tmp_path):
    file = tmp_path / "server.properties"
    file.write_text(
        "listeners=SSL://127.0.0.1:0\nsecurity.inter.broker.protocol=SSL\n"
        "ssl.keystore.location=/no/such/file\nssl.keystore.password=canary\n"
    )
    with pytest.raises(StartFailed) as failure:
        BrokerProcess(tmp_path / "data", "--config", str(file), listen=None)
    lines = [line for line in str(failure.value).splitlines() if line.startswith("headrace:")]
    assert lines == [
        "headrace: cannot use TLS on listener SSL: Cannot read /no/such/file of ssl.keystore.location: "
        "No such file or directory"
    ]
    assert "canary" not in str(failure.value)


def test_an_expired_certificate_is_used_for_clients_with_a_warning(tmp_path, caplog):
    expired = certificate(expired=True)
    with two_listeners(tmp_path):
        pass
    assert "expired" not in caplog.text
    stores = {f"{PREFIX}{name}": value for name, value in expired.write(tmp_path, "expired").items()}
    with two_listeners(tmp_path, **stores):
        pass
    assert "of listener EXTERNAL has expired" in caplog.text


def test_settings_that_somebody_stored_without_a_prefix_are_not_in_force(caplog):
    config = BrokerConfig.load({"listeners": "PLAINTEXT://127.0.0.1:9092"})
    config.apply_dynamic({"ssl.keystore.location": "/x", "max.connections": "7"}, {})
    assert config.int("max.connections") == 7
    assert config.optional_str("ssl.keystore.location") is None
    assert "ssl.keystore.location" in caplog.text


def test_a_plain_broker_answers_without_tls():
    with Broker() as broker, RawClient(broker.bootstrap_servers) as client:
        assert is_answered(client)


@pytest.mark.parametrize(("client_auth", "warns"), [("required", True), ("requested", True), ("none", False)])
def test_a_listener_that_trusts_the_authorities_of_the_system_warns(client_auth, warns, caplog):
    settings = tls_config(listeners="SSL://127.0.0.1:0", ssl_client_auth=client_auth)
    for name in ("ssl.truststore.type", "ssl.truststore.certificates", "security.inter.broker.protocol"):
        del settings[name]
    config = BrokerConfig.load({**settings, "listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"})
    ListenerTls.load("SSL", SecurityProtocol.SSL, config)
    lines = [line for line in caplog.messages if "no trust store" in line]
    assert len(lines) == warns
    for line in lines:
        assert line.startswith(f"listener SSL has ssl.client.auth={client_auth} and no trust store")
    caplog.clear()
    ListenerTls.load("SSL", SecurityProtocol.SSL, BrokerConfig.load(tls_config(ssl_client_auth=client_auth)))
    assert caplog.messages == []
