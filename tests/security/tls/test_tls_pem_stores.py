import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tls_identities import identity

from headrace.properties import ConfigError
from headrace.security.tls import TlsOptions, server_context
from headrace.security.tls.pem import PemError, certificates_in, private_key_in, to_pem
from headrace.security.tls.stores import load_key_store, load_trust_store

FORMS = {
    "lines": lambda text: text,
    "one line": lambda text: text.replace("\n", " "),
    "escaped": lambda text: text.replace("\n", "\\n"),
    "crlf": lambda text: text.replace("\n", "\r\n"),
    "no last line end": str.strip,
    "text around": lambda text: f"Bag Attributes: some\n{text}\nand more - or less --- text",
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_inline_values_come_in_several_forms(form):
    own = identity()
    options = own.options(
        {
            "ssl.keystore.key": form(own.key),
            "ssl.keystore.certificate.chain": form(own.chain),
            "ssl.truststore.certificates": form(own.authority),
            "ssl.client.auth": "required",
        }
    )
    assert load_key_store(options) == load_key_store(own.options())
    assert load_trust_store(options) == load_trust_store(own.options())
    server_context(options)


@given(st.binary(min_size=1), st.sampled_from(list(FORMS.values())), st.integers(1, 3))
def test_entries_survive_every_form(data, form, count):
    text = form((to_pem("CERTIFICATE", data) + to_pem("OTHER", b"x")) * count + to_pem("PRIVATE KEY", data))
    assert certificates_in(text) == (data,) * count
    assert private_key_in(text) == data


@given(st.text(alphabet="-BEGIN CRTFADx\n=:", max_size=300))
def test_any_text_is_read_or_refused(text):
    try:
        found = certificates_in(text)
    except PemError:
        found = None
    assert found != ()


def test_a_file_has_the_key_and_the_chain(tmp_path):
    own = identity()
    path = tmp_path / "store.pem"
    path.write_text(own.chain + own.key)
    options = TlsOptions.from_settings({"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)})
    assert load_key_store(options) == load_key_store(own.options())


def test_an_encrypted_key_needs_its_password(tmp_path):
    own = identity()
    encrypted = {"ssl.keystore.key": own.encrypted_key("secret"), "ssl.key.password": "secret"}
    assert load_key_store(own.options(encrypted)) == load_key_store(own.options())
    with pytest.raises(ConfigError, match=r"needs ssl\.key\.password"):
        load_key_store(own.options({**encrypted, "ssl.key.password": None}))
    with pytest.raises(ConfigError, match=r"ssl\.key\.password is wrong") as failure:
        load_key_store(own.options({**encrypted, "ssl.key.password": "canary"}))
    assert "canary" not in str(failure.value)
    with pytest.raises(ConfigError, match=r"is not encrypted, but ssl\.key\.password is set"):
        load_key_store(own.options({"ssl.key.password": "secret"}))


def test_keys_in_the_form_of_openssl_are_read():
    own = identity()
    assert load_key_store(own.options({"ssl.keystore.key": own.traditional_key()})) == load_key_store(own.options())


def test_an_encrypted_key_in_the_old_form_of_openssl_is_refused():
    headers = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00"
    old = f"-----BEGIN RSA PRIVATE KEY-----\n{headers}\n\nAAAA\n-----END RSA PRIVATE KEY-----"
    with pytest.raises(ConfigError, match="openssl pkcs8 -topk8"):
        load_key_store(identity().options({"ssl.keystore.key": old}))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ssl.keystore.type": "JKS"}, "ssl.keystore.key needs ssl.keystore.type=PEM"),
        ({"ssl.keystore.type": "pem"}, "ssl.keystore.type must be PEM, PKCS12 or JKS, not pem"),
        ({"ssl.keystore.certificate.chain": None}, "ssl.keystore.certificate.chain is not"),
        ({"ssl.keystore.key": None}, "ssl.keystore.certificate.chain is set, but ssl.keystore.key is not"),
        ({"ssl.keystore.location": "/x"}, "are both set"),
        ({"ssl.keystore.password": "x"}, "has no ssl.keystore.password"),
        ({"ssl.keystore.key": "text"}, "Cannot use ssl.keystore.key: it has no PRIVATE KEY entry"),
        ({"ssl.keystore.key": identity().key * 2}, "it has 2 private keys, not one"),
        ({"ssl.keystore.key": to_pem("PRIVATE KEY", b"x")}, "not a valid PKCS8 key"),
        ({"ssl.keystore.certificate.chain": "text"}, "chain: it has no CERTIFICATE entry"),
        ({"ssl.keystore.certificate.chain": to_pem("CERTIFICATE", b"x")}, "certificate 1 is not a valid X.509"),
        ({"ssl.keystore.certificate.chain": "-----BEGIN CERTIFICATE-----\nü\n-----END CERTIFICATE-----"}, "base64"),
    ],
)
def test_a_key_store_that_cannot_be_used(settings, message):
    with pytest.raises(ConfigError, match=message) as failure:
        load_key_store(identity().options(settings))
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ssl.truststore.type": "JKS"}, "ssl.truststore.certificates needs ssl.truststore.type=PEM"),
        ({"ssl.truststore.type": "x"}, "ssl.truststore.type must be PEM, PKCS12 or JKS, not x"),
        ({"ssl.truststore.location": "/x"}, "are both set"),
        ({"ssl.truststore.password": "x"}, "has no ssl.truststore.password"),
        ({"ssl.truststore.certificates": "text"}, "ssl.truststore.certificates: it has no CERTIFICATE entry"),
        (
            {"ssl.truststore.type": "JKS", "ssl.truststore.certificates": None, "ssl.truststore.password": "x"},
            "ssl.truststore.password is set, but ssl.truststore.location is not",
        ),
    ],
)
def test_a_trust_store_that_cannot_be_used(settings, message):
    with pytest.raises(ConfigError, match=message) as failure:
        load_trust_store(identity().options(settings))
    assert "\n" not in str(failure.value)


def test_a_missing_file_is_named():
    missing = TlsOptions.from_settings({"ssl.keystore.type": "PEM", "ssl.keystore.location": "/no/such/file"})
    with pytest.raises(ConfigError, match=r"Cannot read /no/such/file of ssl\.keystore\.location: No such file"):
        load_key_store(missing)


def test_the_key_reaches_no_file(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = set(os.listdir("/proc/self/fd"))
    server_context(identity().options())
    assert set(os.listdir("/proc/self/fd")) == before
    assert list(tmp_path.iterdir()) == []


def test_without_memfd_the_key_is_in_a_file_of_the_owner_which_is_removed(monkeypatch, tmp_path):
    from headrace.security.tls import key_files

    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (entry,) = load_key_store(identity().options())
    with key_files.key_file(entry) as path:
        assert Path(path).parent == tmp_path
        assert Path(path).stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == []
    server_context(identity().options())
