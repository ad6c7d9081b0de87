"""JKS and PKCS12 stores: those that keytool writes, and damaged ones."""

import hashlib

import pytest
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from hypothesis import given
from hypothesis import strategies as st
from keytool import keytool, needs_keytool
from tls_identities import identity

from headrace.properties import ConfigError
from headrace.security.tls import TlsOptions, client_context, server_context
from headrace.security.tls.handshake import shake_hands
from headrace.security.tls.jks import JksError, read_jks, recover_key
from headrace.security.tls.pkcs12 import Pkcs12Error, read_pkcs12
from headrace.security.tls.stores import load_key_store, load_trust_store

PASSWORD = "secret-1"


def key_options(path, **others):
    settings = {"ssl.keystore.location": path, "ssl.keystore.password": PASSWORD, "ssl.keystore.type": "JKS"}
    return TlsOptions.from_settings(
        {**settings, **{f"ssl.{name.replace('_', '.')}": value for name, value in others.items()}}
    )


def trust_options(path, password=PASSWORD, kind="JKS"):
    settings = {"ssl.truststore.location": path, "ssl.truststore.password": password, "ssl.truststore.type": kind}
    return TlsOptions.from_settings(settings)


def der(certificate):
    return certificate.public_bytes(Encoding.DER)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("stores")


@pytest.fixture(scope="module")
def openssl_store(folder):
    """A PKCS12 store with a key and its chain, as OpenSSL writes it."""
    own = identity()
    path = folder / "openssl.p12"
    encryption = BestAvailableEncryption(PASSWORD.encode())
    authorities = [own.authority_certificate]
    path.write_bytes(serialize_key_and_certificates(b"own", own.private_key, own.certificate, authorities, encryption))
    return path


@pytest.fixture(scope="module")
def authority_file(folder):
    path = folder / "authority.pem"
    path.write_text(identity().authority)
    return path


@pytest.fixture(scope="module")
def java_stores(folder, openssl_store, authority_file):
    """The key and the trusted authority in stores of both formats. One start of Java takes half a second."""
    stores = {}
    for kind in ("JKS", "PKCS12"):
        keys, trust = folder / f"keys.{kind}", folder / f"trust.{kind}"
        source = ("-srckeystore", openssl_store, "-srcstorepass", PASSWORD)
        keytool("-importkeystore", *source, "-destkeystore", keys, "-deststoretype", kind, "-deststorepass", PASSWORD)
        for path in (keys, trust):
            imported = ("-importcert", "-noprompt", "-alias", "CaRoot", "-file", authority_file)
            keytool(*imported, "-keystore", path, "-storetype", kind, "-storepass", PASSWORD)
        stores[kind] = keys, trust
    return stores


@needs_keytool
@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
class TestStoresOfJava:
    @pytest.mark.parametrize("setting", ["JKS", "PKCS12", "jks"])
    def test_a_key_store_is_read_by_its_content(self, java_stores, kind, setting):
        keys, _ = java_stores[kind]
        (entry,) = load_key_store(key_options(keys, keystore_type=setting))
        (expected,) = load_key_store(identity().options())
        assert entry.key == expected.key
        assert entry.chain == (der(identity().certificate), der(identity().authority_certificate))

    @pytest.mark.parametrize("setting", ["JKS", "PKCS12"])
    def test_a_trust_store_is_read_by_its_content(self, java_stores, kind, setting):
        _, trust = java_stores[kind]
        assert load_trust_store(trust_options(trust, kind=setting)) == (der(identity().authority_certificate),)

    def test_a_store_with_keys_and_trusted_certificates(self, java_stores, kind):
        keys, _ = java_stores[kind]
        own = identity()
        assert set(load_trust_store(trust_options(keys))) == {der(own.certificate), der(own.authority_certificate)}

    def test_both_sides_connect(self, java_stores, kind):
        keys, trust = java_stores[kind]
        client, _ = shake_hands(client_context(trust_options(trust)), server_context(key_options(keys)), "localhost")
        assert client.version() == "TLSv1.3"

    def test_a_wrong_password(self, java_stores, kind):
        for store, load in zip(java_stores[kind], (key_options, trust_options), strict=True):
            options = load(store)
            wrong = TlsOptions.from_settings(
                {
                    "ssl.keystore.location": options.keystore_location,
                    "ssl.keystore.password": "canary",
                    "ssl.truststore.location": options.truststore_location or store,
                    "ssl.truststore.password": "canary",
                }
            )
            read = load_key_store if load is key_options else load_trust_store
            with pytest.raises(ConfigError, match="password is wrong") as failure:
                read(wrong)
            assert str(store) in str(failure.value)
            assert "canary" not in str(failure.value)

    def test_a_key_password_of_its_own(self, java_stores, kind, tmp_path):
        keys, _ = java_stores[kind]
        if kind == "PKCS12":  # keytool makes no such store: test_tls_several_keys.py
            with pytest.raises(ConfigError, match=r"its private key 'own' cannot be read: ssl\.key\.password is wrong"):
                load_key_store(key_options(keys, key_password="other"))
            return
        copy = tmp_path / "copy.jks"
        copy.write_bytes(keys.read_bytes())
        changed = ("-alias", "own", "-keypass", PASSWORD, "-new", "other-key")
        keytool("-keypasswd", *changed, "-keystore", copy, "-storetype", "JKS", "-storepass", PASSWORD)
        assert load_key_store(key_options(copy, key_password="other-key")) == load_key_store(key_options(keys))
        with pytest.raises(ConfigError, match="password of its private key is wrong"):
            load_key_store(key_options(copy))


@needs_keytool
def test_a_jks_trust_store_needs_no_password(java_stores):
    assert load_trust_store(trust_options(java_stores["JKS"][1], None)) == (der(identity().authority_certificate),)


@needs_keytool
def test_a_jceks_store_is_refused(folder, authority_file):
    path = folder / "store.jceks"
    imported = ("-importcert", "-noprompt", "-alias", "a", "-file", authority_file)
    keytool(*imported, "-keystore", path, "-storetype", "JCEKS", "-storepass", PASSWORD)
    with pytest.raises(ConfigError, match="it is a JCEKS store; convert it by 'keytool"):
        load_trust_store(trust_options(path))


@needs_keytool
@pytest.mark.parametrize(
    ("options", "passwords"),
    [
        (["-J-Dkeystore.pkcs12.legacy"], [PASSWORD]),
        (
            ["-J-Dkeystore.pkcs12.certProtectionAlgorithm=NONE", "-J-Dkeystore.pkcs12.macAlgorithm=NONE"],
            [PASSWORD, None],
        ),
    ],
    ids=["old encryption", "no password"],
)
def test_trust_stores_of_other_versions_of_java(tmp_path, authority_file, options, passwords):
    path = tmp_path / "store.p12"
    imported = ("-importcert", "-noprompt", "-alias", "a", "-file", authority_file)
    keytool(*options, *imported, "-keystore", path, "-storetype", "PKCS12", "-storepass", PASSWORD)
    for password in passwords:
        assert load_trust_store(trust_options(path, password)) == (der(identity().authority_certificate),)
    if None not in passwords:
        with pytest.raises(ConfigError, match="it needs a password"):
            load_trust_store(trust_options(path, None))


class TestStoresOfOpenssl:
    def test_a_key_with_its_chain(self, openssl_store):
        (entry,) = load_key_store(key_options(openssl_store))
        assert entry.chain == (der(identity().certificate), der(identity().authority_certificate))
        # Java trusts the own certificate of a key, not its authority
        assert load_trust_store(trust_options(openssl_store)) == (der(identity().certificate),)

    def test_old_encryption(self, tmp_path):
        own = identity()
        path = tmp_path / "old.p12"
        from cryptography.hazmat.primitives.serialization import pkcs12

        old = PrivateFormat.PKCS12.encryption_builder().kdf_rounds(1000)
        old = old.key_cert_algorithm(pkcs12.PBES.PBESv1SHA1And3KeyTripleDESCBC).hmac_hash(SHA1())
        encryption = old.build(PASSWORD.encode())
        path.write_bytes(serialize_key_and_certificates(b"own", own.private_key, own.certificate, None, encryption))
        assert load_key_store(key_options(path))[0].chain == (der(own.certificate),)

    def test_a_trust_store_without_keys(self, tmp_path):
        path = tmp_path / "trust.p12"
        encryption = BestAvailableEncryption(PASSWORD.encode())
        authority = identity().authority_certificate
        path.write_bytes(serialize_key_and_certificates(None, None, None, [authority], encryption))
        assert load_trust_store(trust_options(path)) == (der(authority),)
        with pytest.raises(ConfigError, match="it has no private key"):
            load_key_store(key_options(path))


# -- JKS in bytes, without Java


def utf_16(password):
    return password.encode("utf-16-be")


def string(text):
    return len(text).to_bytes(2, "big") + text.encode()


def number(value):
    return value.to_bytes(4, "big")


def jks(entries, password=PASSWORD, version=2, magic="feedfeed"):
    body = bytes.fromhex(magic) + number(version) + number(len(entries)) + b"".join(entries)
    return body + hashlib.sha1(utf_16(password) + b"Mighty Aphrodite" + body).digest()


def trusted(data=b"certificate", kind="X.509"):
    return number(2) + string("alias") + bytes(8) + string(kind) + number(len(data)) + data


def test_entries_of_a_store():
    store = read_jks(jks([trusted(b"one"), trusted(b"two")]), PASSWORD)
    assert store.trusted == (b"one", b"two")
    assert store.keys == ()


def test_version_1_has_no_certificate_types():
    entry = number(2) + string("alias") + bytes(8) + number(3) + b"one"
    assert read_jks(jks([entry], version=1), PASSWORD).trusted == (b"one",)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (jks([trusted()], "other"), "password is wrong"),
        (jks([trusted()], version=3), "unknown version 3"),
        (jks([trusted()], magic="cafebabe"), "not a JKS store"),
        (jks([trusted(kind="PGP")]), "unknown type 'PGP'"),
        (jks([number(3) + string("alias") + bytes(8)]), "unknown kind 3"),
        (jks([trusted()[:-1]]), "ends in the middle"),
        (jks([trusted() + b"x"]), "after its last entry"),
        (jks([number(1) + string("a") + bytes(8) + b"\xff\xff\xff\xff"]), "ends in the middle"),
        (b"", "password is wrong"),
    ],
)
def test_a_store_that_cannot_be_read(data, message):
    with pytest.raises(JksError, match=message):
        read_jks(data, PASSWORD)


def test_a_changed_byte_is_noticed():
    data = bytearray(jks([trusted()]))
    data[-25] ^= 1
    with pytest.raises(JksError, match="the file was changed"):
        read_jks(bytes(data), PASSWORD)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data):
    for password in (None, PASSWORD):
        with pytest.raises(JksError):
            read_jks(data, password)
    with pytest.raises(JksError):
        recover_key(data, PASSWORD)
    with pytest.raises(Pkcs12Error):
        read_pkcs12(data, PASSWORD)


def test_a_file_that_is_no_store(tmp_path):
    path = tmp_path / "store"
    path.write_text("text")
    with pytest.raises(ConfigError, match="neither a PKCS12 nor a JKS store"):
        load_key_store(key_options(path))
    path.write_bytes(jks([trusted()]))
    with pytest.raises(ConfigError, match="certificate 1 is not a valid"):
        load_trust_store(trust_options(path))
    path.write_bytes(jks([]))
    with pytest.raises(ConfigError, match="no trusted certificate"):
        load_trust_store(trust_options(path))


def test_a_large_file_is_not_read(tmp_path):
    path = tmp_path / "store"
    with path.open("wb") as file:
        file.truncate(17 << 20)
    with pytest.raises(ConfigError, match="more than 16777216 bytes"):
        load_key_store(key_options(path))
