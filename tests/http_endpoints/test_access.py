"""Credentials of HTTP requests, and which address may be served with which protection."""

from base64 import b64encode
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.http_endpoints.access import Access, read_access
from headrace.http_endpoints.protection import Protection, is_loopback
from headrace.properties import ConfigError

TOKEN = Access(bearer_token="s3cret-token")
PASSWORD = Access(basic="anna:pass:word")
EITHER = Access(bearer_token="s3cret-token", basic="anna:pass:word")


def basic(text):
    return f"Basic {b64encode(text.encode()).decode()}"


@pytest.mark.parametrize(
    ("access", "header", "expected"),
    [
        (Access(), None, True),
        (Access(), "Bearer anything", True),
        (TOKEN, "Bearer s3cret-token", True),
        (TOKEN, "bearer  s3cret-token ", True),
        (TOKEN, None, False),
        (TOKEN, "", False),
        (TOKEN, "Bearer", False),
        (TOKEN, "Bearer ", False),
        (TOKEN, "Bearer s3cret-toke", False),
        (TOKEN, "Bearer s3cret-token2", False),
        (TOKEN, "s3cret-token", False),
        (TOKEN, "Basic ", False),
        (TOKEN, basic(":"), False),
        (PASSWORD, basic("anna:pass:word"), True),
        (PASSWORD, basic("anna:pass"), False),
        (PASSWORD, "Basic ?", False),
        (PASSWORD, "Bearer anna:pass:word", False),
        (PASSWORD, "Bearer ", False),
        (EITHER, basic("anna:pass:word"), True),
        (EITHER, "Bearer s3cret-token", True),
        (EITHER, "Digest s3cret-token", False),
    ],
)
def test_only_the_right_credentials_are_allowed(access, header, expected):
    assert access.allows(header) is expected


@given(st.text(max_size=200))
def test_no_other_header_is_allowed(header):
    assert not Access(bearer_token="a" * 100, basic="user:" + "b" * 100).allows(header)


def test_challenges_name_what_a_client_may_use():
    assert Access().challenges() == ()
    assert TOKEN.challenges() == ('Bearer realm="headrace"',)
    assert [text.partition(" ")[0] for text in EITHER.challenges()] == ["Bearer", "Basic"]


def test_secrets_are_not_shown():
    shown = repr(Protection("cert.pem", "key.pem", "key-secret", EITHER))
    assert "cert.pem" in shown
    assert not any(secret in shown for secret in ("key-secret", "s3cret", "pass:word"))


def read(tmp_path, bearer=None, basic=None, **environment):
    files = []
    for name, content in (("bearer", bearer), ("basic", basic)):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        files.append(None if content is None else str(tmp_path / name))
    return read_access(*files, environment, bearer_variable="TOKEN", basic_variable="BASIC")


def test_secrets_come_from_files_or_the_environment(tmp_path):
    assert read(tmp_path) == Access()
    assert read(tmp_path, b"abc\n", b"anna:x\n") == Access("abc", "anna:x")
    assert read(tmp_path, TOKEN="abc", BASIC="anna:x") == Access("abc", "anna:x")
    assert read(tmp_path, b"abc", TOKEN="other").bearer_token == "abc"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"bearer": b"\n"}, "bearer is empty"),
        ({"bearer": b"abc\ndef"}, "more than one line"),
        ({"bearer": b"abc def"}, "no spaces"),
        ({"bearer": b"\xff\xfe"}, "not UTF-8 text"),
        ({"bearer": b"a" * 5000}, "more than 4096 bytes"),
        ({"basic": b"abc"}, "write one line USER:PASSWORD"),
        ({"basic": b"abc:"}, "write one line USER:PASSWORD"),
        ({"BASIC": "abc"}, "the environment variable BASIC: write one line USER:PASSWORD"),
        ({"TOKEN": "abc def"}, "the environment variable TOKEN: a bearer token"),
    ],
)
def test_an_unusable_secret_is_one_line_without_the_secret(tmp_path, given, message):
    with pytest.raises(ConfigError, match=message) as caught:
        read(tmp_path, **given)
    assert "abc" not in str(caught.value)


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        read_access(str(tmp_path / "no"), None, {}, bearer_variable="T", basic_variable="B")


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.8.0.1", True), ("::1", True), ("0.0.0.0", False), ("::", False), ("10.0.0.1", False),
     ("", False), ("localhost", False)],
)  # fmt: skip
def test_loopback(host, expected):
    assert is_loopback(host) is expected


def test_an_address_that_others_reach_needs_tls_and_a_password():
    Protection().check_address("127.0.0.1", "hints")
    Protection(allows_insecure=True).check_address("0.0.0.0", "hints")
    Protection("cert.pem", access=TOKEN).check_address("0.0.0.0", "hints")
    for protection, missing in (
        (Protection(), "no TLS and no password"),
        (Protection("cert.pem"), "no password"),
        (Protection(access=TOKEN), "no TLS"),
    ):
        with pytest.raises(ConfigError, match=f"other hosts can reach 0.0.0.0, and there is {missing}; hints"):
            protection.check_address("0.0.0.0", "hints")


def test_files_that_are_no_certificate_are_one_line(tmp_path):
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("nothing")
    for protection, message in (
        (Protection(str(tmp_path / "no.pem")), "cannot read .*no.pem: No such file"),
        (Protection(str(wrong)), "cannot use the certificate .*wrong.pem and its key"),
        (Protection(key=str(wrong)), "needs a certificate"),
    ):
        with pytest.raises(ConfigError, match=message):
            protection.tls_context()


def test_a_certificate_with_its_key(certificate, tmp_path):
    assert Protection(certificate.chain, certificate.key).tls_context() is not None
    both = tmp_path / "both.pem"
    both.write_text("".join(Path(path).read_text() for path in (certificate.chain, certificate.key)))
    assert Protection(str(both)).tls_context() is not None
    with pytest.raises(ConfigError, match="cannot use the certificate"):
        Protection(certificate.chain).tls_context()
