"""SCRAM: the dialog of both sides, what each side refuses, and that unknown users look like known ones."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.security.sasl.mechanism import SCRAM_SHA_256, SCRAM_SHA_512, AuthenticationFailed
from headrace.security.sasl.scram import (
    MAX_CLIENT_ITERATIONS,
    ScramCredential,
    credential_of,
    new_credential,
    xor,
)
from headrace.security.sasl.scram_client import ScramClient
from headrace.security.sasl.scram_messages import (
    escaped,
    read_client_final,
    read_client_first,
    read_server_first,
    unescaped,
)
from headrace.security.sasl.scram_server import CredentialShape, Decoys, ScramAccount, ScramServer, shape_of
from headrace.security.tokens.credentials import credential_of_token

MECHANISMS = pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512])
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)


class Accounts:
    """The users of a server, by name."""

    def __init__(self, **passwords: str) -> None:
        self.by_name = {name: new_credential(SCRAM_SHA_256, password) for name, password in passwords.items()}
        self.sha_512 = {name: new_credential(SCRAM_SHA_512, password) for name, password in passwords.items()}
        self.tokens: dict[str, ScramAccount] = {}
        self.asked: list[str] = []

    def __call__(self, mechanism: str, name: str, *, is_token: bool) -> ScramAccount | None:
        self.asked.append(name)
        if is_token:
            return self.tokens.get(name)
        credential = (self.by_name if mechanism == SCRAM_SHA_256 else self.sha_512).get(name)
        return None if credential is None else ScramAccount(credential, name)

    def shapes(self, mechanism: str) -> list[CredentialShape]:
        credentials = self.by_name if mechanism == SCRAM_SHA_256 else self.sha_512
        return sorted({shape_of(credential) for credential in credentials.values()})


ACCOUNTS = Accounts(alice="secret", bob="other")


def server_of(accounts: Accounts = ACCOUNTS, mechanism: str = SCRAM_SHA_256) -> ScramServer:
    return ScramServer(mechanism, accounts, Decoys(b"of the cluster", accounts.shapes))


def talk(client: ScramClient, server: ScramServer) -> None:
    token: bytes | None = client.first()
    while token is not None:
        token = client.step(server.step(token))


@MECHANISMS
def test_a_user_logs_in(mechanism: str) -> None:
    client, server = ScramClient(mechanism, "alice", "secret"), server_of(mechanism=mechanism)
    talk(client, server)
    assert client.is_complete
    assert server.is_complete
    assert server.authorization_id == "alice"
    assert not server.is_token_authenticated


@given(NAMES, st.text(max_size=20))
def test_every_name_and_password_of_unicode_works(name: str, password: str) -> None:
    accounts = Accounts()
    accounts.by_name[name] = new_credential(SCRAM_SHA_256, password)
    server = server_of(accounts)
    talk(ScramClient(SCRAM_SHA_256, name, password), server)
    assert server.authorization_id == name


def test_the_dialog_of_the_rfc() -> None:
    """The example of RFC 7677, both sides."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    client = ScramClient(SCRAM_SHA_256, "user", "pencil", nonce=lambda: "rOprNGfwEbeRWgbNEkqO")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    first = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    last = client.step(first)
    assert last == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert client.step(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None
    assert client.is_complete

    accounts = Accounts()
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    accounts.by_name["user"] = credential_of(SCRAM_SHA_256, salted, salt, 4096)
    server = ScramServer(
        SCRAM_SHA_256, accounts, Decoys(b"", accounts.shapes), nonce=lambda: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    assert server.step(client.first()) == first
    assert server.step(last) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@MECHANISMS
@pytest.mark.parametrize(("name", "password"), [("alice", "wrong"), ("nobody", "secret"), ("bob", "secret")])
def test_a_login_fails_at_the_same_step_with_the_same_words(mechanism: str, name: str, password: str) -> None:
    client, server = ScramClient(mechanism, name, password), server_of(mechanism=mechanism)
    challenge = server.step(client.first())
    assert read_server_first(challenge).iterations == 4096
    proof = client.step(challenge)
    assert proof is not None
    with pytest.raises(AuthenticationFailed, match="unknown user or wrong password") as failed:
        server.step(proof)
    assert failed.value.for_peer is None
    assert not server.is_complete


def test_an_unknown_user_costs_the_same_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for module, name in ((hmac, "digest"), (hmac, "compare_digest"), (hashlib, "new")):
        monkeypatch.setattr(module, name, _counted(calls, name, getattr(module, name)))
    counts = []
    for name in ("alice", "nobody"):
        client, server = ScramClient(SCRAM_SHA_256, name, "wrong"), server_of()
        challenge = server.step(client.first())
        proof = client.step(challenge)
        assert proof is not None
        with pytest.raises(AuthenticationFailed):
            server.step(proof)
        counts.append(list(calls))
        calls.clear()
    assert counts[0] == counts[1]
    assert "compare_digest" in counts[0]


def _counted(calls: list[str], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        calls.append(name)
        return function(*arguments, **named)

    return call


def test_the_salt_of_an_unknown_user_never_changes_and_looks_real() -> None:
    first, second = Decoys(b"one cluster", ACCOUNTS.shapes), Decoys(b"one cluster", ACCOUNTS.shapes)
    decoy = first(SCRAM_SHA_256, "nobody")
    assert decoy.salt == second(SCRAM_SHA_256, "nobody").salt
    assert decoy.salt != first(SCRAM_SHA_256, "no-one").salt
    assert decoy.salt != first(SCRAM_SHA_512, "nobody").salt
    assert decoy.salt != Decoys(b"another cluster", ACCOUNTS.shapes)(SCRAM_SHA_256, "nobody").salt
    assert len(decoy.salt) == len(ACCOUNTS.by_name["alice"].salt)
    assert decoy.salt.decode().isalnum()


def test_decoys_have_the_iterations_and_salts_of_real_users() -> None:
    real = [new_credential(SCRAM_SHA_256, "x", 8192), ScramCredential(b"\xff" * 40, b"", b"", 4096)]
    decoys = Decoys(b"", lambda _: [shape_of(credential) for credential in real])
    shapes = {(made.iterations, len(made.salt)) for made in (decoys(SCRAM_SHA_256, f"u{i}") for i in range(50))}
    assert shapes == {(8192, 26), (4096, 40)}


def test_unknown_tokens_look_like_tokens_and_not_like_users() -> None:
    decoys = Decoys(b"", lambda _: [CredentialShape(16384, 64, is_base36=False)])
    token, user = decoys(SCRAM_SHA_256, "id", is_token=True), decoys(SCRAM_SHA_256, "id")
    real = credential_of_token(SCRAM_SHA_256, b"hmac")
    assert shape_of(token) == shape_of(real)
    assert shape_of(user).iterations == 16384


def test_a_credential_with_too_few_iterations_lets_nobody_in() -> None:
    accounts = Accounts()
    accounts.by_name["weak"] = new_credential(SCRAM_SHA_256, "secret", 1000)
    decoys = Decoys(b"", lambda _: [])
    client, server = ScramClient(SCRAM_SHA_256, "weak", "secret"), ScramServer(SCRAM_SHA_256, accounts, decoys)
    with pytest.raises(AuthenticationFailed, match="unknown user or wrong password"):
        talk(client, server)


@pytest.mark.parametrize("change", [lambda nonce: "x" + nonce, lambda nonce: nonce[:-1], lambda nonce: nonce[32:]])
def test_the_final_nonce_has_to_be_equal(change: Callable[[str], str]) -> None:
    """CVE-2024-56128: a nonce that only ends with the server's nonce is refused."""
    server = server_of()
    first = read_server_first(server.step(b"n,,n=alice,r=" + b"c" * 32))
    with pytest.raises(AuthenticationFailed, match="nonce"):
        server.step(f"c=biws,r={change(first.nonce)},p={base64.b64encode(b'p' * 32).decode()}".encode())


def test_nobody_logs_in_as_somebody_else() -> None:
    """CVE-2017-12610, for SCRAM. The header is not part of the proof, so the client's honest proof is used here."""
    for authorization_id, expected in (("bob", "authorization id"), ("alice", None)):
        client, server = ScramClient(SCRAM_SHA_256, "alice", "secret"), server_of()
        header = f"n,a={authorization_id},"
        client._first = type(client._first)(
            **{
                **{name: getattr(client._first, name) for name in client._first.__slots__},
                "header": header,
            }
        )
        if expected is None:
            talk(client, server)
            assert server.authorization_id == "alice"
        else:
            with pytest.raises(AuthenticationFailed, match=expected):
                talk(client, server)
            assert not server.is_complete


def test_the_last_message_repeats_the_header() -> None:
    server = server_of()
    first = read_server_first(server.step(b"n,a=alice,n=alice,r=nonce"))
    with pytest.raises(AuthenticationFailed, match="header"):
        server.step(f"c=biws,r={first.nonce},p=AAAA".encode())


def test_a_token_logs_its_owner_in() -> None:
    accounts = Accounts(alice="secret")
    accounts.tokens["id-1"] = ScramAccount(new_credential(SCRAM_SHA_256, "hmac"), "carol", expires_at_ms=77)
    server = server_of(accounts)
    client = ScramClient(SCRAM_SHA_256, "id-1", "hmac", is_token=True)
    assert client.first().endswith(b",tokenauth=true")
    talk(client, server)
    assert (server.authorization_id, server.expires_at_ms, server.is_token_authenticated) == ("carol", 77, True)
    with pytest.raises(AuthenticationFailed):  # a user's password is no token
        talk(ScramClient(SCRAM_SHA_256, "alice", "secret", is_token=True), server_of(accounts))
    with pytest.raises(AuthenticationFailed):  # a token is no user
        talk(ScramClient(SCRAM_SHA_256, "id-1", "hmac"), server_of(accounts))


@pytest.mark.parametrize("iterations", ["4095", "0", str(MAX_CLIENT_ITERATIONS + 1), "999999999", "9" * 30, "-1", ""])
def test_a_client_limits_the_iterations_that_a_server_names(iterations: str) -> None:
    client = ScramClient(SCRAM_SHA_256, "alice", "secret", nonce=lambda: "n")
    with pytest.raises(AuthenticationFailed, match="iterations"):
        client.step(f"r=nmore,s=c2FsdA==,i={iterations}".encode())


@pytest.mark.parametrize("nonce", ["n", "m", "more"])
def test_a_client_refuses_a_nonce_that_is_not_its_own_and_more(nonce: str) -> None:
    client = ScramClient(SCRAM_SHA_256, "alice", "secret", nonce=lambda: "n")
    with pytest.raises(AuthenticationFailed, match="nonce"):
        client.step(f"r={nonce},s=c2FsdA==,i=4096".encode())


@pytest.mark.parametrize("final", [b"v=AAAA", b"e=invalid-proof", b"", b"v=", b"x=1"])
def test_a_client_trusts_no_server_without_the_right_signature(final: bytes) -> None:
    client, server = ScramClient(SCRAM_SHA_256, "alice", "secret"), server_of()
    client.step(server.step(client.first()))
    with pytest.raises(AuthenticationFailed):
        client.step(final)
    assert not client.is_complete


@pytest.mark.parametrize(
    "token",
    [
        b"", b"n", b"n,,", b"n,,n=,r=x", b"n,,n=a=b,r=x", b"n,,n=a,r=", b"n,,r=x,n=a", b"p=tls-unique,,n=a,r=x",
        b"n,,m=x,n=a,r=x", b"n,,n=a,r=x,m=1", b"n,,n=a,r=x,ext", b"n,,n=a,r=x,3=4", b"n,b=c,n=a,r=x", b"\xff\xfe",
        b"n,,n=a,r=a b", b"n,,n=a=2c,r=x",
    ],
)  # fmt: skip
def test_a_malformed_first_message_is_refused(token: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        server_of().step(token)


def test_a_message_has_a_bounded_number_of_parts() -> None:
    """A first message of 400 KB with 100,000 extensions took 98 ms of the event loop, before any login."""
    read_client_first(b"n,,n=a,r=x" + b",e=1" * 90)
    for many in (91, 100_000):
        with pytest.raises(AuthenticationFailed, match="too many parts"):
            read_client_first(b"n,,n=a,r=x" + b",e=1" * (many + 8))


@given(st.binary(max_size=80) | st.text("n,=rcpa2C3Diws+/", max_size=60).map(str.encode))
def test_any_bytes_are_a_message_or_a_failed_login(token: bytes) -> None:
    for read in (read_client_first, read_client_final, read_server_first):
        try:
            read(token)
        except AuthenticationFailed:
            continue


@given(NAMES)
def test_escaping_is_undone(name: str) -> None:
    assert unescaped(escaped(name)) == name
    assert "," not in escaped(name)


@given(st.binary(min_size=1), st.binary(min_size=1), st.binary(min_size=1), st.integers(1, 99999))
def test_kafkas_text_of_a_credential_is_read_back(salt: bytes, stored: bytes, server: bytes, iterations: int) -> None:
    credential = ScramCredential(salt, stored, server, iterations)
    assert ScramCredential.from_text(credential.to_text()) == credential


def test_kafkas_own_text_of_a_credential() -> None:
    text = "salt=MWJjeGQ=,stored_key=qg==,server_key=uw==,iterations=4096"
    credential = ScramCredential.from_text(text)
    assert credential == ScramCredential(b"1bcxd", b"\xaa", b"\xbb", 4096)
    assert credential.to_text() == text


@pytest.mark.parametrize("text", ["", "salt=x", "salt=?,stored_key=qg==,server_key=uw==,iterations=1", "a=b,c=d"])
def test_a_text_that_is_no_credential_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(ValueError, match="SCRAM credential") as error:
        ScramCredential.from_text(text)
    assert not text or text not in str(error.value)


def test_no_object_shows_a_key() -> None:
    credential = new_credential(SCRAM_SHA_256, "secret")
    assert repr(credential) == "ScramCredential(iterations=4096)"
    assert "secret" not in repr(ScramClient(SCRAM_SHA_256, "alice", "secret"))


def test_xor() -> None:
    assert xor(b"\x0f\xf0", b"\xff\x00") == b"\xf0\xf0"
