"""The stores that may replace the stores of a running listener."""

import os
from datetime import UTC, datetime, timedelta

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from tls_identities import authority, identity

from headrace.properties import ConfigError
from headrace.security.tls import TlsOptions
from headrace.security.tls.loaded_stores import LoadedStores
from headrace.security.tls.replacement import check_mutual_trust, check_replacement


def stores(common_name="broker", hosts=("a", "b"), ca="one", trusts="one", days=1):
    """The stores of a certificate that was made a moment ago, by an authority of trustme."""
    key, now = generate_private_key(SECP256R1()), datetime.now(UTC)
    issuer = authority(ca)
    builder = x509.CertificateBuilder(
        x509.load_pem_x509_certificate(issuer.cert_pem.bytes()).subject,
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)]),
        key.public_key(),
    )
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=3)).not_valid_after(now + timedelta(days=days))
    names = [x509.DNSName(host) for host in hosts]
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    certificate = builder.sign(issuer._private_key, SHA256())
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
        "ssl.keystore.certificate.chain": certificate.public_bytes(Encoding.PEM).decode(),
    }
    if trusts is not None:
        settings["ssl.truststore.type"] = "PEM"
        settings["ssl.truststore.certificates"] = authority(trusts).cert_pem.bytes().decode()
    return LoadedStores.load(TlsOptions.from_settings(settings))


def test_a_new_key_of_the_same_name_may_replace_the_old_one():
    check_replacement(stores(), stores())
    check_replacement(stores("Broker  One"), stores("broker one"))


def test_names_may_be_added_but_not_lost():
    check_replacement(stores(hosts=("a",)), stores(hosts=("a", "b")))
    check_replacement(stores(hosts=()), stores(hosts=("a",)))
    with pytest.raises(ConfigError, match="lacks subject alternative names of the present one: DNSName:b"):
        check_replacement(stores(hosts=("a", "b")), stores(hosts=("a", "c")))
    check_replacement(stores(hosts=("a", "b")), stores(hosts=()), allow_san_changes=True)


def test_the_distinguished_name_stays():
    with pytest.raises(ConfigError, match=r"\(CN=two\) differs from the present one \(CN=one\)"):
        check_replacement(stores("one"), stores("two"))
    check_replacement(stores("one"), stores("two"), allow_dn_changes=True)
    with pytest.raises(ConfigError, match="lacks"):
        check_replacement(stores("one"), stores("two", hosts=()), allow_dn_changes=True)
    check_replacement(stores("one"), stores("two", hosts=()), allow_dn_changes=True, allow_san_changes=True)


def test_a_trust_store_is_not_added():
    with pytest.raises(ConfigError, match="Cannot add a trust store"):
        check_replacement(stores(trusts=None), stores())
    check_replacement(stores(), stores(trusts="two"))


def test_brokers_with_old_and_new_stores_trust_each_other():
    check_mutual_trust(stores(), stores())
    with pytest.raises(ConfigError, match="the trust store must trust the key store's certificate") as failure:
        check_mutual_trust(stores(), stores(ca="two", trusts="two"))
    assert "\n" not in str(failure.value)
    with pytest.raises(ConfigError):
        check_mutual_trust(stores(ca="two"), stores(ca="two"))


def test_an_expired_certificate_is_not_trusted():
    with pytest.raises(ConfigError, match="certificate has expired"):
        check_mutual_trust(stores(days=-1), stores(days=-1))


def test_expired_certificates_are_named():
    loaded, now = stores("carol"), datetime.now(UTC)
    assert loaded.expired(now) == []
    assert loaded.expired(now + timedelta(days=2)) == ["CN=carol"]
    assert loaded.expired(now - timedelta(days=4)) == ["CN=carol"]


class TestFiles:
    @pytest.fixture
    def options(self, tmp_path):
        own = identity()
        (tmp_path / "keys.pem").write_text(own.key + own.chain)
        (tmp_path / "trust.pem").write_text(own.authority)
        return TlsOptions.from_settings(
            {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": tmp_path / "keys.pem",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": tmp_path / "trust.pem",
            }
        )

    @pytest.mark.parametrize("name", ["keys.pem", "trust.pem"])
    def test_a_changed_file_is_noticed(self, options, tmp_path, name):
        loaded = LoadedStores.load(options)
        assert loaded.is_current(options)
        path = tmp_path / name
        os.utime(path, ns=(1, 1))
        assert not loaded.is_current(options)
        loaded = LoadedStores.load(options)
        other = tmp_path / "other"
        other.write_bytes(path.read_bytes())
        other.replace(path)
        os.utime(path, ns=(1, 1))
        assert not loaded.is_current(options), "another file with the same time"
        path.unlink()
        assert not loaded.is_current(options)

    def test_other_settings_are_noticed(self, options):
        loaded = LoadedStores.load(options)
        assert not loaded.is_current(identity().options())


def test_stores_do_not_show_their_keys():
    loaded = stores()
    assert repr(loaded.keys[0].key)[2:20] not in repr(loaded)
    assert "PRIVATE" not in repr(loaded)


def test_several_kinds_of_keys_are_offered(tmp_path):
    from headrace.security.tls import client_context, server_context
    from headrace.security.tls.handshake import shake_hands

    rsa, ec = identity("localhost", "one", trustme.KeyType.RSA), identity()
    one, two = (LoadedStores.load(own.options()) for own in (rsa, ec))
    both = LoadedStores(two.options, (*one.keys, *two.keys), two.trusted, ())
    server = server_context(both.options, both)
    for suite, cipher in (
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"),
    ):
        client, _ = shake_hands(client_context(ec.options({"ssl.cipher.suites": suite})), server, "localhost")
        assert client.cipher()[0] == cipher
