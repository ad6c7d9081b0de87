import ssl
import subprocess
import sys

import pytest
import trustme
from tls_identities import identity

from headrace.properties import ConfigError
from headrace.security.tls import TlsOptions, client_context, server_context
from headrace.security.tls.handshake import shake_hands

CLIENT = {"ssl.truststore.type": "PEM"}


def client_options(others=None):
    """A client without a certificate that trusts the authority of the servers."""
    return TlsOptions.from_settings({**CLIENT, "ssl.truststore.certificates": identity().authority, **(others or {})})


def connect(server=None, client=None, host="localhost"):
    return shake_hands(client_context(client or client_options()), server_context(server or identity().options()), host)


def test_a_client_that_trusts_the_authority_connects():
    client, server = connect()
    assert client.version() == server.version() == "TLSv1.3"
    assert client.getpeercert()["subjectAltName"] == (("DNS", "localhost"), ("IP Address", "127.0.0.1"))
    assert server.getpeercert() is None


def test_a_client_refuses_a_server_of_an_unknown_authority():
    with pytest.raises(ssl.SSLCertVerificationError, match=r"self-signed|unable to get local issuer"):
        connect(identity("localhost", "two").options())


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_the_host_is_checked_by_names_and_addresses(host):
    assert connect(host=host)[0].cipher() is not None


@pytest.mark.parametrize("host", ["elsewhere", "127.0.0.2"])
@pytest.mark.parametrize("algorithm", ["https", "HTTPS"])
def test_another_host_is_refused(host, algorithm):
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        connect(client=client_options({"ssl.endpoint.identification.algorithm": algorithm}), host=host)


def test_an_empty_algorithm_checks_no_host_but_still_the_authority():
    unchecked = {"ssl.endpoint.identification.algorithm": ""}
    assert connect(client=client_options(unchecked), host="elsewhere")[0].cipher() is not None
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(identity("localhost", "two").options(), client_options(unchecked), "elsewhere")


@pytest.mark.parametrize("algorithm", ["ldaps", "none"])
def test_an_unknown_algorithm_is_refused(algorithm):
    with pytest.raises(ConfigError, match=r"ssl\.endpoint\.identification\.algorithm"):
        client_context(client_options({"ssl.endpoint.identification.algorithm": algorithm}))


class TestClientCertificates:
    @pytest.mark.parametrize("auth", ["required", "requested"])
    def test_the_server_sees_the_certificate(self, auth):
        _, server = connect(identity().options({"ssl.client.auth": auth}), identity("client").options())
        assert ("DNS", "client") in server.getpeercert()["subjectAltName"]

    def test_required_refuses_a_client_without_one(self):
        with pytest.raises(ssl.SSLError, match=r"(?i)peer.did.not.return.a.certificate"):
            connect(identity().options({"ssl.client.auth": "required"}))

    def test_requested_accepts_a_client_without_one(self):
        _, server = connect(identity().options({"ssl.client.auth": "requested"}))
        assert server.getpeercert() is None

    @pytest.mark.parametrize("auth", ["required", "requested"])
    def test_a_certificate_of_an_unknown_authority_is_refused(self, auth):
        stranger = identity("client", "two").options({"ssl.truststore.certificates": identity().authority})
        with pytest.raises(ssl.SSLCertVerificationError):
            connect(identity().options({"ssl.client.auth": auth}), stranger)

    def test_none_does_not_ask(self):
        _, server = connect(identity().options(), identity("client").options())
        assert server.getpeercert() is None

    def test_another_value_is_refused(self):
        with pytest.raises(ConfigError, match=r"ssl\.client\.auth: must be one of required, requested, none"):
            server_context(identity().options({"ssl.client.auth": "REQUIRE"}))

    def test_every_connection_shows_its_certificate_again(self):
        server = server_context(identity().options({"ssl.client.auth": "required"}))
        assert server.num_tickets == 0
        assert server.options & ssl.OP_NO_TICKET
        assert server_context(identity().options()).num_tickets == 1


class TestVersions:
    @pytest.mark.parametrize(
        ("settings", "version"),
        [
            ({}, "TLSv1.3"),
            ({"ssl.enabled.protocols": "TLSv1.2"}, "TLSv1.2"),
            ({"ssl.enabled.protocols": "TLSv1.3"}, "TLSv1.3"),
            ({"ssl.enabled.protocols": ""}, "TLSv1.3"),
            ({"ssl.protocol": "TLS"}, "TLSv1.3"),
        ],
    )
    def test_client_and_server_use_what_is_enabled(self, settings, version):
        assert connect(identity().options(settings))[0].version() == version
        assert connect(client=client_options(settings))[0].version() == version

    def test_the_protocol_limits_a_client_but_no_server(self):
        settings = {"ssl.protocol": "TLSv1.2"}
        assert connect(client=client_options(settings))[0].version() == "TLSv1.2"
        assert connect(identity().options(settings))[0].version() == "TLSv1.3"
        with pytest.raises(ConfigError, match="allows no version"):
            client_context(client_options({**settings, "ssl.enabled.protocols": "TLSv1.3"}))

    def test_without_a_common_version_there_is_no_connection(self):
        with pytest.raises(ssl.SSLError):
            connect(
                identity().options({"ssl.enabled.protocols": "TLSv1.3"}),
                client_options({"ssl.enabled.protocols": "TLSv1.2"}),
            )

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"ssl.enabled.protocols": "TLSv1.1,TLSv1.2"}, "'TLSv1.1' for configuration ssl.enabled.protocols"),
            ({"ssl.enabled.protocols": "SSLv3"}, "'SSLv3' for configuration ssl.enabled.protocols"),
            ({"ssl.protocol": "TLSv1.1"}, "'TLSv1.1' for configuration ssl.protocol"),
        ],
    )
    def test_others_are_refused(self, settings, message):
        with pytest.raises(ConfigError, match=message):
            server_context(identity().options(settings))
        with pytest.raises(ConfigError, match=message):
            client_context(client_options(settings))


class TestCipherSuites:
    @pytest.mark.parametrize(
        ("suites", "version", "cipher"),
        [
            ("TLS_AES_128_GCM_SHA256", "TLSv1.3", "TLS_AES_128_GCM_SHA256"),
            ("TLS_CHACHA20_POLY1305_SHA256", "TLSv1.3", "TLS_CHACHA20_POLY1305_SHA256"),
            ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLSv1.2", "ECDHE-ECDSA-AES128-GCM-SHA256"),
            ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "TLSv1.2", "ECDHE-ECDSA-CHACHA20-POLY1305"),
            ("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384", "TLSv1.2", "ECDHE-ECDSA-AES256-SHA384"),
            (
                "TLS_AES_128_GCM_SHA256, TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_EMPTY_RENEGOTIATION_INFO_SCSV",
                "TLSv1.3",
                "TLS_AES_128_GCM_SHA256",
            ),
        ],
    )
    def test_names_of_iana_choose_the_cipher_and_with_it_the_version(self, suites, version, cipher):
        client, _ = connect(identity().options({"ssl.cipher.suites": suites}))
        assert (client.version(), client.cipher()[0]) == (version, cipher)
        client, _ = connect(client=client_options({"ssl.cipher.suites": suites}))
        assert (client.version(), client.cipher()[0]) == (version, cipher)

    def test_every_name_is_known_to_openssl(self):
        from headrace.security.tls.cipher_suites import OPENSSL_NAMES

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        for name in OPENSSL_NAMES.values():
            context.set_ciphers(name)
            assert name in {cipher["name"] for cipher in context.get_ciphers()}

    @pytest.mark.parametrize("suite", ["TLS_NO_SUCH_SUITE", "ECDHE-RSA-AES128-GCM-SHA256", "TLS_RSA_WITH_RC4_128_SHA"])
    def test_an_unknown_suite_is_refused(self, suite):
        with pytest.raises(ConfigError, match=rf"'{suite}' for configuration ssl\.cipher\.suites"):
            server_context(identity().options({"ssl.cipher.suites": ["TLS_AES_128_GCM_SHA256", suite]}))

    def test_suites_of_another_version_than_the_enabled_one_are_refused(self):
        settings = {"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256", "ssl.enabled.protocols": "TLSv1.2"}
        with pytest.raises(ConfigError, match=r"no cipher suite of a version in ssl\.enabled\.protocols"):
            server_context(identity().options(settings))


class TestKeys:
    @pytest.mark.parametrize("kind", list(trustme.KeyType))
    def test_rsa_and_ec(self, kind):
        assert connect(identity("localhost", "one", kind).options())[0].cipher() is not None

    def test_a_key_of_another_certificate_is_refused(self):
        with pytest.raises(ConfigError, match="does not belong to the first certificate"):
            server_context(identity().options({"ssl.keystore.key": identity("client").key}))

    def test_a_key_of_another_kind_is_refused(self):
        other = identity("localhost", "one", trustme.KeyType.RSA).key
        with pytest.raises(ConfigError, match="does not belong to the first certificate"):
            server_context(identity().options({"ssl.keystore.key": other}))

    def test_a_server_needs_a_key_store(self):
        with pytest.raises(ConfigError, match="needs a key store"):
            server_context(client_options())

    def test_an_intermediate_authority_in_the_trust_store_is_enough(self):
        root = trustme.CA()
        middle = root.create_child_ca()
        leaf = middle.issue_cert("localhost")
        server = TlsOptions.from_settings(
            {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.key": leaf.private_key_pem.bytes().decode(),
                "ssl.keystore.certificate.chain": leaf.cert_chain_pems[0].bytes().decode(),
            }
        )
        trusting = client_options({"ssl.truststore.certificates": middle.cert_pem.bytes().decode()})
        assert connect(server, trusting)[0].cipher() is not None


def test_secrets_are_not_in_the_repr():
    options = identity().options({"ssl.key.password": "canary", "ssl.keystore.password": "canary"})
    assert "canary" not in repr(options)
    assert "BEGIN" not in repr(options)
    assert "ssl.keystore.password" not in repr(options)


def test_the_import_needs_neither_ssl_nor_cryptography():
    code = "import headrace.security.tls, sys; print(sorted({'ssl', '_ssl', 'cryptography'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.strip() == "[]"
