"""Stores with several keys, and with a key password of their own: Java's choice.

``java_stores.json`` and ``java_key_order.csv`` were made by ``MakeStores.java``, on Java 17 and on Java 25. The stores
have the keys server, client and 2026 (EC) and rsa; the subject of each certificate is the alias.
"""

import json
from base64 import b64decode
from pathlib import Path

import pytest

from headrace.properties import ConfigError
from headrace.security.tls import TlsOptions, client_context, server_context
from headrace.security.tls.handshake import shake_hands
from headrace.security.tls.java_order import order_of_jks, order_of_key_manager
from headrace.security.tls.names import certificate_subject
from headrace.security.tls.pkcs12 import Pkcs12Error, read_pkcs12
from headrace.security.tls.stores import load_key_store, load_trust_store

HERE = Path(__file__).parent
STORES = {kind: b64decode(text) for kind, text in json.loads((HERE / "java_stores.json").read_text()).items()}
FACTS = [line.split("|") for line in (HERE / "java_key_order.csv").read_text().splitlines()]
STORE_PASSWORD, KEY_PASSWORD = "secret-1", "key-secret"


@pytest.fixture(params=["PKCS12", "JKS"])
def store(request, tmp_path):
    path = tmp_path / "store"
    path.write_bytes(STORES[request.param])
    return path


def key_options(path, store_password=STORE_PASSWORD, key_password=KEY_PASSWORD):
    settings = {"ssl.keystore.location": path, "ssl.keystore.password": store_password}
    return TlsOptions.from_settings(settings | ({} if key_password is None else {"ssl.key.password": key_password}))


@pytest.mark.parametrize(("kind", "inserted", "ordered"), FACTS, ids=lambda text: text[:20])
def test_the_order_of_java(kind, inserted, ordered):
    aliases = inserted.lower().split(",")
    if kind == "JKS":
        aliases = order_of_jks(order_of_jks(aliases))  # as Java wrote the file, and as it read the file
    assert order_of_key_manager(aliases) == ordered.split(",")


def test_all_keys_are_read_in_the_order_of_java(store):
    entries = load_key_store(key_options(store))
    assert [entry.alias for entry in entries] == ["rsa", "server", "2026", "client"]
    assert [certificate_subject(entry.chain[0]) for entry in entries] == [f"CN={entry.alias}" for entry in entries]


@pytest.mark.parametrize(("kind", "expected"), [("ECDSA", "CN=server"), ("RSA", "CN=rsa")])
def test_a_handshake_uses_the_first_key_of_its_kind(store, kind, expected):
    settings = {
        "ssl.truststore.location": store,
        "ssl.truststore.password": STORE_PASSWORD,
        "ssl.protocol": "TLSv1.2",
        "ssl.enabled.protocols": "TLSv1.2",
        "ssl.cipher.suites": f"TLS_ECDHE_{kind}_WITH_AES_128_GCM_SHA256",
    }
    trust = TlsOptions.from_settings(settings)
    client, _ = shake_hands(client_context(trust), server_context(key_options(store)), "localhost")
    assert certificate_subject(client.getpeercert(binary_form=True)) == expected


def test_a_trust_store_needs_no_password_of_its_keys(store):
    trust = TlsOptions.from_settings({"ssl.truststore.location": store, "ssl.truststore.password": STORE_PASSWORD})
    subjects = {certificate_subject(one) for one in load_trust_store(trust)}
    assert subjects == {"CN=server", "CN=client", "CN=2026", "CN=rsa"}


@pytest.mark.parametrize(
    ("passwords", "message"),
    [
        ((STORE_PASSWORD, None), "private key"),
        ((STORE_PASSWORD, "canary"), "private key"),
        (("canary", KEY_PASSWORD), "its password is wrong"),
        ((KEY_PASSWORD, KEY_PASSWORD), "its password is wrong"),
    ],
)
def test_wrong_passwords(store, passwords, message):
    with pytest.raises(ConfigError, match=message) as failure:
        load_key_store(key_options(store, *passwords))
    assert str(store) in str(failure.value)
    assert not any(secret in str(failure.value) for secret in ("canary", KEY_PASSWORD))


def test_a_changed_store_is_refused():
    """The MAC is checked, although the keys are read apart from the store."""
    data = STORES["PKCS12"]
    for at in range(40, len(data), 211):
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        with pytest.raises(Pkcs12Error):
            read_pkcs12(changed, STORE_PASSWORD)
