"""PLAIN: who gets in, and that a wrong password and an unknown user look the same."""

from __future__ import annotations

import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.security.sasl.mechanism import AuthenticationFailed
from headrace.security.sasl.plain import PlainClient, PlainServer, PlainUsers

USERS = PlainUsers({"alice": "secret", "bob": "other"})
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)


@given(WORDS, WORDS)
def test_both_sides_agree_for_every_name_and_password(username: str, password: str) -> None:
    server, client = PlainServer(PlainUsers({username: password})), PlainClient(username, password)
    assert server.step(client.first()) == b""
    assert client.step(b"") is None
    assert client.is_complete
    assert server.is_complete
    assert server.authorization_id == username
    assert server.expires_at_ms is None


@given(st.binary(max_size=64))
def test_any_other_token_fails_with_the_type_of_a_failed_login(token: bytes) -> None:
    server = PlainServer(USERS)
    with pytest.raises(AuthenticationFailed):
        server.step(token)
    assert not server.is_complete


@pytest.mark.parametrize("token", [b"\0alice\0wrong", b"\0nobody\0secret", b"\0bob\0secret", b"alice\0nobody\0secret"])
def test_an_unknown_user_and_a_wrong_password_get_the_same_answer(token: bytes) -> None:
    with pytest.raises(AuthenticationFailed) as failed:
        PlainServer(USERS).step(token)
    assert failed.value.for_peer == "Authentication failed: Invalid username or password"
    assert not {"alice", "nobody"} & set(str(failed.value).split())


def test_an_unknown_user_costs_the_same_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    """CVE-2021-38153: the comparison takes the same time for every input."""
    calls: list[tuple[int, int]] = []
    real = hmac.compare_digest

    def counted(left: bytes, right: bytes) -> bool:
        calls.append((len(left), len(right)))
        return real(left, right)

    monkeypatch.setattr(hmac, "compare_digest", counted)
    assert not USERS("alice", "wrong")
    assert not USERS("nobody", "a much longer password than any other")
    assert USERS("alice", "secret")
    assert calls == [(32, 32)] * 3


def test_nobody_logs_in_as_somebody_else() -> None:
    """CVE-2017-12610: the authorization id has to be the user."""
    with pytest.raises(AuthenticationFailed, match="authorization id") as failed:
        PlainServer(USERS).step(b"bob\0alice\0secret")
    assert "different from username" in str(failed.value.for_peer)
    server = PlainServer(USERS)
    server.step(b"alice\0alice\0secret")
    assert server.authorization_id == "alice"


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"alice\0secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0x\0more", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\xff\0x", None),
    ],
)
def test_a_malformed_token_gets_kafkas_answer(token: bytes, text: str | None) -> None:
    with pytest.raises(AuthenticationFailed) as failed:
        PlainServer(USERS).step(token)
    assert failed.value.for_peer == text


def test_no_object_shows_a_password() -> None:
    assert "secret" not in f"{USERS!r}{PlainClient('alice', 'secret')!r}{USERS.__dict__}"


def test_a_client_expects_no_challenge() -> None:
    client = PlainClient("alice", "secret")
    with pytest.raises(AuthenticationFailed):
        client.step(b"challenge")
    assert not client.is_complete
