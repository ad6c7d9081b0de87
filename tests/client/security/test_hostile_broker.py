"""A hostile or impostor broker: a client does little for it, for a limited time, and tells it no secret."""

import asyncio
from contextlib import contextmanager, suppress
from socket import SHUT_RDWR, create_server, socket
from struct import pack
from threading import Thread

import pytest
from fake_broker import FakeBroker, authenticated, running, scram_server

from certificates import certificate
from headrace.client.config import AdminConfig
from headrace.client.connection import MAX_LOGIN_FRAME_BYTES, Connection
from headrace.client.errors import (
    BadResponse,
    BrokerUnreachable,
    SaslAuthenticationFailed,
    TlsHandshakeFailed,
    UnsupportedMechanism,
)
from headrace.client.security.login import MAX_ROUNDS
from headrace.client.security.setup import security_of
from headrace.event_loop import new_event_loop
from headrace.protocol.api import Api
from headrace.protocol.kio import ErrorCode
from headrace.security.sasl.plain import PlainServer, PlainUsers
from headrace.security.sasl.scram_messages import base64_text
from headrace.security.tls import TlsOptions, server_context

SCRAM = "SCRAM-SHA-256"
PASSWORD = "correct horse"


def security(protocol="SASL_PLAINTEXT", mechanism=SCRAM, **options):
    login = {"sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": PASSWORD}
    given = {"security.protocol": protocol, **(login if protocol.startswith("SASL") else {}), **options}
    return security_of(AdminConfig.load(given, bootstrap_servers="h:1"))


async def connect(broker, used, **options):
    return await Connection.open(*broker.address, security=used, **options)


def plain():
    return PlainServer(PlainUsers({"alice": PASSWORD}))


class Scripted:
    """A server's side that says what the test wants."""

    is_complete = False

    def __init__(self, *steps):
        self._steps = list(steps)

    def step(self, token):
        step = self._steps.pop(0) if len(self._steps) > 1 else self._steps[0]
        return step(token) if callable(step) else step


def nonce_of(token: bytes) -> str:
    return token.decode().partition(",r=")[2].partition(",")[0]


def server_first(iterations="4096", nonce=lambda sent: sent + "more", salt=b"salt"):
    return lambda token: f"r={nonce(nonce_of(token))},s={base64_text(salt)},i={iterations}".encode()


SIGNATURE = b"v=" + base64_text(b"0" * 32).encode()


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([server_first(str(2**31))], "iterations is not a number of at most nine digits"),
        ([server_first("999999999")], "asks for 999999999 iterations"),
        ([server_first("1")], "asks for 1 iterations"),
        ([server_first("-5")], "not a number"),
        ([server_first(nonce=lambda _: "another")], "nonce does not continue"),
        ([server_first(nonce=lambda sent: sent)], "nonce does not continue"),
        ([server_first(nonce=lambda sent: "x" + sent)], "nonce does not continue"),
        ([server_first(), SIGNATURE], "did not prove that it knows the user's key"),
        ([server_first(), b""], "SCRAM message has no v="),
        ([server_first(), b"e=other-error"], "refused the login: other-error"),
        ([b""], "too few parts"),
        ([b"\xff" * 100], "not UTF-8"),
        ([b"," * 50], "malformed or unknown extension"),
        ([b"," * 60_000], "too many parts"),
    ],
)
async def test_scram_messages_of_an_impostor(steps, reason):
    async with running(FakeBroker({SCRAM: lambda: Scripted(*steps)})) as broker:
        with pytest.raises(SaslAuthenticationFailed, match=reason) as error:
            await connect(broker, security())
    assert PASSWORD not in str(error.value)


async def test_a_broker_cannot_end_scram_early():
    """Success without a signature is no success."""
    async with running(FakeBroker({SCRAM: lambda: Scripted(b"")})) as broker:
        with pytest.raises(SaslAuthenticationFailed):
            await connect(broker, security())


async def test_a_broker_cannot_choose_a_weaker_mechanism():
    """The client names the mechanism. A password is never sent as PLAIN to a broker that offers nothing else."""
    async with running(FakeBroker()) as broker:
        with pytest.raises(UnsupportedMechanism):
            await connect(broker, security())
    assert Api.SASL_AUTHENTICATE not in broker.seen


async def test_challenges_without_end():
    mechanism, option = "OAUTHBEARER", {"sasl_oauth_token_provider": lambda: "a.b.c"}
    used = security(mechanism=mechanism, **{name.replace("_", "."): value for name, value in option.items()})
    async with running(FakeBroker({mechanism: lambda: Scripted(b'{"status":"more"}')})) as broker:
        with pytest.raises(SaslAuthenticationFailed, match="did not end a login that it refused"):
            await connect(broker, used)
    assert broker.seen.count(Api.SASL_AUTHENTICATE) == 2


async def test_rounds_without_end():
    class Endless:
        name = "ENDLESS"
        is_complete = False

        def first(self):
            return b"x"

        def step(self, challenge):
            return challenge

    class Credentials:
        mechanism = "ENDLESS"

        async def begin(self):
            return Endless()

    used = security()
    object.__setattr__(used, "credentials", Credentials())
    async with running(FakeBroker({"ENDLESS": lambda: Scripted(b"y")})) as broker:
        with pytest.raises(SaslAuthenticationFailed, match=f"after {MAX_ROUNDS} rounds"):
            await connect(broker, used)


@pytest.mark.parametrize("api", [Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE])
@pytest.mark.parametrize("size_bytes", [MAX_LOGIN_FRAME_BYTES + 1, 2**31 - 1, -1])
async def test_a_long_frame_before_the_login_ends_the_connection(api, size_bytes):
    async with running(FakeBroker({SCRAM: scram_server(SCRAM, "alice", PASSWORD)})) as broker:
        broker.answers[api] = lambda _: pack(">i", size_bytes) + bytes(100)
        with pytest.raises(BrokerUnreachable, match="at most 65536 are allowed"):
            await connect(broker, security())


@pytest.mark.parametrize("first", [b"HTTP/1.1 400 Bad Request\r\n", pack(">i", MAX_LOGIN_FRAME_BYTES + 1)])
async def test_a_long_first_frame_ends_a_connection_without_a_login(first):
    """Another server, whose first bytes look like a length of a gigabyte: the client does not wait for its timeout."""
    async with running(FakeBroker()) as broker:
        broker.answers[Api.API_VERSIONS] = lambda _: first
        with pytest.raises(BrokerUnreachable, match="at most 65536 are allowed"):
            await connect(broker, security("PLAINTEXT"))


@pytest.mark.parametrize("api", [Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE])
async def test_silence_ends_with_the_time_for_connecting(api):
    async with running(FakeBroker({SCRAM: scram_server(SCRAM, "alice", PASSWORD)})) as broker:
        broker.answers[api] = lambda _: None
        with pytest.raises(BrokerUnreachable, match="did not answer within 100 ms"):
            await connect(broker, security(), timeout_ms=60_000, connect_timeout_ms=100)


async def test_a_brokers_text_is_shown_short_and_on_one_line():
    async with running(FakeBroker()) as broker:
        code = ErrorCode.sasl_authentication_failed.value
        broker.answers[Api.SASL_AUTHENTICATE] = lambda _: authenticated(
            b"", code=code, message="a\n\x1b[31m" + "b" * 9999
        )
        with pytest.raises(SaslAuthenticationFailed) as error:
            await connect(broker, security(mechanism="PLAIN"))
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 800


async def test_a_negative_lifetime_is_no_end():
    async with running(FakeBroker({"PLAIN": plain}, lifetimes_ms=[-1])) as broker:
        connection = await connect(broker, security(mechanism="PLAIN"))
        assert not connection._login.holds_back([b""])
        await connection.close()


async def test_a_lifetime_that_no_clock_can_count():
    async with running(FakeBroker({"PLAIN": plain}, lifetimes_ms=[2**62])) as broker:
        with pytest.raises((BrokerUnreachable, BadResponse)):
            await connect(broker, security(mechanism="PLAIN"))


# -- TLS


def listener(made, **settings):
    return server_context(TlsOptions.from_settings({**made.key_store(), **made.trust_store(), **settings}))


GOOD = certificate()
TRUST = GOOD.trust_store()


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (certificate("elsewhere.example"), "the certificate is for another host"),
        (certificate(issuer="two"), "does not have the issuer of the broker's certificate"),
        (certificate(expired=True), "the broker needs a new certificate"),
    ],
)
@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
async def test_a_wrong_certificate(made, reason, protocol):
    async with running(FakeBroker(), listener(made)) as broker:
        with pytest.raises(TlsHandshakeFailed, match=reason):
            await connect(broker, security(protocol, **TRUST))
    assert broker.seen == []


async def test_the_check_of_the_host_can_be_turned_off_but_not_that_of_the_issuer():
    off = {**TRUST, "ssl.endpoint.identification.algorithm": ""}
    async with running(FakeBroker(), listener(certificate("elsewhere.example"))) as broker:
        connection = await connect(broker, security("SSL", **off))
        await connection.close()
    async with running(FakeBroker(), listener(certificate("elsewhere.example", issuer="two"))) as broker:
        with pytest.raises(TlsHandshakeFailed, match="issuer"):
            await connect(broker, security("SSL", **off))


@contextmanager
def handshakes(context):
    """A listener that does nothing but handshakes. The streams of asyncio close without sending their alert."""
    server = create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            client.settimeout(5)
            with context.wrap_socket(client, server_side=True, do_handshake_on_connect=False) as secured:
                with suppress(OSError):
                    secured.do_handshake()
                # Reads what the client has sent: a socket that is closed before that loses the alert.
                with suppress(OSError):
                    while socket.recv(secured, 65_536):
                        pass

    thread = Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield server.getsockname()
    finally:
        server.shutdown(SHUT_RDWR)
        thread.join(timeout=5)
        server.close()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, new_event_loop])
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_broker_that_asks_for_a_certificate(version, new_loop):
    """With TLS 1.3 the refusal comes after the client's handshake."""
    asks = {"ssl.client.auth": "required", "ssl.enabled.protocols": version}

    async def attempt(address, **options):
        with pytest.raises(TlsHandshakeFailed, match=r"ssl\.keystore"):
            await Connection.open(*address, security=security("SSL", **TRUST, **options))

    with handshakes(listener(GOOD, **asks)) as address, asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(attempt(address))
        runner.run(attempt(address, **certificate(issuer="two").key_store()))


async def test_a_certificate_of_the_client():
    async with running(FakeBroker(), listener(GOOD, **{"ssl.client.auth": "required"})) as broker:
        connection = await connect(broker, security("SSL", **TRUST, **certificate(name="carol").key_store()))
        await connection.close()
    assert broker.seen == [Api.API_VERSIONS]


async def test_no_common_version_of_tls():
    newer = security("SSL", **TRUST, **{"ssl.enabled.protocols": "TLSv1.3"})
    with (
        handshakes(listener(GOOD, **{"ssl.enabled.protocols": "TLSv1.2"})) as address,
        pytest.raises(TlsHandshakeFailed, match=r"ssl\.enabled\.protocols"),
    ):
        await Connection.open(*address, security=newer)


async def test_other_protocols_than_the_listeners():
    async with running(FakeBroker()) as broker:
        with pytest.raises(BrokerUnreachable, match=r"is SSL the listener's protocol \(security.protocol\)"):
            await connect(broker, security("SSL", **TRUST))
    async with running(FakeBroker(), listener(GOOD)) as broker:
        with pytest.raises(BrokerUnreachable, match=r"is PLAINTEXT the listener's protocol \(security.protocol\)"):
            await connect(broker, security("PLAINTEXT"))
