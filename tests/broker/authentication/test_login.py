"""Logins on a broker's listener: what is read before them, how they fail, how long they count."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from struct import pack

import pytest
from sasl_harness import CONFIG, PLAIN_JAAS, add_scram_users, log_in, sasl_broker

from headrace import Broker
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.security.principal import ANONYMOUS, Principal
from headrace.security.sasl.plain import PlainClient
from headrace.security.sasl.scram_client import ScramClient
from headrace.testing import ClosedByPeer, ManualClock, RawClient, pass_time
from headrace.testing.raw_client import encode_request

ALICE = ("alice", "alice-secret")
SCRAM = pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with sasl_broker({"sasl.server.max.receive.size": 2000}) as broker:
        add_scram_users(broker)
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap_servers) as client:
        yield client


def metadata_of(client: RawClient) -> object:
    return client.ask(Api.METADATA, 1, topics=[])


def principals(broker: Broker) -> list[Principal]:
    return [connection.principal for connection in broker.core.connections]


# -- logins


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_user_logs_in_by_plain(broker: Broker, client: RawClient, version: int) -> None:
    client.ask(Api.API_VERSIONS, 0)
    assert principals(broker)[-1:] == [ANONYMOUS]
    answer = log_in(client, PlainClient(*ALICE), version=version)
    assert answer.auth_bytes == b""
    assert version == 0 or answer.session_lifetime == timedelta(0)
    assert principals(broker)[-1:] == [Principal("User", "alice")]
    assert metadata_of(client)


@SCRAM
def test_a_user_logs_in_by_scram(broker: Broker, client: RawClient, mechanism: str) -> None:
    log_in(client, ScramClient(mechanism, *ALICE))
    assert Principal("User", "alice") in principals(broker)
    assert metadata_of(client)


def test_api_versions_may_come_first_and_a_frame_may_be_large_afterwards(client: RawClient) -> None:
    keys = {one.api_key for one in client.ask(Api.API_VERSIONS, 0).api_keys}
    assert {Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE} <= keys
    log_in(client, PlainClient(*ALICE))
    names = [{"name": f"topic-{number}"} for number in range(1000)]  # more than sasl.server.max.receive.size
    assert len(client.ask(Api.METADATA, 1, topics=names).topics) == 1000


def test_the_handshake_lists_the_mechanisms(client: RawClient) -> None:
    answer = client.ask(Api.SASL_HANDSHAKE, 1, mechanism="GSSAPI")
    assert answer.error_code == ErrorCode.unsupported_sasl_mechanism
    assert answer.mechanisms == ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    assert client.is_closed_by_peer()


@pytest.mark.parametrize(
    ("name", "password"), [("alice", "wrong"), ("nobody", "wrong"), ("nobody", "alice-secret")], ids=str
)
class TestFailures:
    def test_of_plain(self, client: RawClient, name: str, password: str) -> None:
        answer = log_in(client, PlainClient(name, password))
        assert answer.error_code == ErrorCode.sasl_authentication_failed
        assert answer.error_message == "Authentication failed: Invalid username or password"
        assert client.is_closed_by_peer()

    @SCRAM
    def test_of_scram(self, client: RawClient, name: str, password: str, mechanism: str) -> None:
        """The first answer has salt and iterations for every name; only the last one fails."""
        scram = ScramClient(mechanism, name, password)
        client.ask(Api.SASL_HANDSHAKE, 1, mechanism=mechanism)
        first = client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=scram.first())
        assert first.error_code == ErrorCode.none
        last = client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=scram.step(first.auth_bytes))
        assert last.error_code == ErrorCode.sasl_authentication_failed
        assert last.error_message == (
            f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
        )
        assert client.is_closed_by_peer()


def test_an_authorization_id_of_another_user_is_refused(client: RawClient) -> None:
    """CVE-2017-12610."""
    client.ask(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN")
    answer = client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=b"bob\0alice\0alice-secret")
    assert answer.error_code == ErrorCode.sasl_authentication_failed
    assert "different from username" in answer.error_message


def test_the_salt_of_an_unknown_user_is_the_same_every_time(broker: Broker) -> None:
    salts = set()
    for _ in range(3):
        with RawClient(broker.bootstrap_servers) as client:
            client.ask(Api.SASL_HANDSHAKE, 1, mechanism="SCRAM-SHA-256")
            answer = client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=b"n,,n=nobody,r=abc")
            salts.add(answer.auth_bytes.partition(b",")[2])
    assert len(salts) == 1


# -- tokens without a header


def test_raw_tokens_after_handshake_v0(broker: Broker, client: RawClient) -> None:
    assert client.ask(Api.SASL_HANDSHAKE, 0, mechanism="SCRAM-SHA-256").error_code == ErrorCode.none
    scram = ScramClient("SCRAM-SHA-256", *ALICE)
    token: bytes | None = scram.first()
    while token is not None:
        client.send_frame(token)
        token = scram.step(client.read_frame())
    assert scram.is_complete
    assert Principal("User", "alice") in principals(broker)
    assert metadata_of(client)


def test_plain_as_a_raw_token_is_answered_with_an_empty_frame(client: RawClient) -> None:
    client.ask(Api.SASL_HANDSHAKE, 0, mechanism="PLAIN")
    client.send_frame(PlainClient(*ALICE).first())
    assert client.read_frame() == b""
    assert metadata_of(client)


def test_a_wrong_raw_token_closes_the_connection(client: RawClient) -> None:
    client.ask(Api.SASL_HANDSHAKE, 0, mechanism="PLAIN")
    client.send_frame(PlainClient("alice", "wrong").first())
    assert client.is_closed_by_peer()


# -- what is read before a login


@pytest.mark.parametrize("api", [api for api in Api if api not in (Api.API_VERSIONS, Api.SASL_HANDSHAKE)], ids=str)
def test_no_other_request_is_read_before_login(client: RawClient, monkeypatch: pytest.MonkeyPatch, api: Api) -> None:
    def must_not_be_read(*_: object) -> None:
        raise AssertionError("the request was read")

    monkeypatch.setattr("headrace.broker.authentication.login.read_request_header", must_not_be_read)
    monkeypatch.setattr("headrace.broker.network.connection.read_request_header", must_not_be_read)
    client.send_frame(pack(">hhih", api, 0, 1, -1) + b"\xff" * 100)
    assert client.is_closed_by_peer()


@pytest.mark.parametrize("frame", [b"", b"\0", pack(">h", 12345), pack(">h", -1), b"GET / HTTP/1.1\r\n"])
def test_anything_else_closes_the_connection(client: RawClient, frame: bytes) -> None:
    client.send_frame(frame)
    assert client.is_closed_by_peer()


def test_only_the_handshake_comes_after_api_versions_and_only_tokens_after_the_handshake(broker: Broker) -> None:
    for first in ((Api.API_VERSIONS, {}), (Api.SASL_HANDSHAKE, {"mechanism": "PLAIN"})):
        with RawClient(broker.bootstrap_servers) as client:
            client.ask(first[0], 1, **first[1])
            with pytest.raises(ClosedByPeer):
                client.ask(Api.API_VERSIONS, 1)


def test_a_second_handshake_instead_of_a_token_fails_the_login(client: RawClient) -> None:
    client.ask(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN")
    answer = client.ask(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN")
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.illegal_sasl_state, ())
    assert client.is_closed_by_peer()


def test_a_newer_api_versions_may_be_repeated(client: RawClient) -> None:
    client.send_frame(pack(">hhih", Api.API_VERSIONS, 99, 1, -1))
    assert client.read_frame()[4:6] == pack(">h", ErrorCode.unsupported_version)
    assert client.ask(Api.API_VERSIONS, 3, client_software_name="a", client_software_version="1").api_keys


def test_a_frame_before_login_is_small(broker: Broker, client: RawClient) -> None:
    """CVE-2022-34917: a length alone, before a login, must not take memory."""
    frame = encode_request(Api.SASL_HANDSHAKE, 1, 1, "c" * 1990, mechanism="PLAIN")
    assert len(frame) > 2000
    client.send_bytes(pack(">i", len(frame)) + frame[:10])
    assert client.is_closed_by_peer()
    for token in (b"x" * 2001,):
        with RawClient(broker.bootstrap_servers) as other:
            other.ask(Api.SASL_HANDSHAKE, 0, mechanism="PLAIN")
            other.send_bytes(pack(">i", len(token)))
            assert other.is_closed_by_peer()


# -- after a login


def test_a_second_login_without_a_limited_session_is_refused(client: RawClient) -> None:
    log_in(client, PlainClient(*ALICE))
    answer = client.ask(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN")
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.illegal_sasl_state, ())
    answer = client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=b"x")
    assert answer.error_code == ErrorCode.illegal_sasl_state
    assert "after successful authentication" in answer.error_message
    assert metadata_of(client)


def test_a_listener_without_sasl_refuses_logins() -> None:
    with Broker() as broker, RawClient(broker.bootstrap_servers) as client:
        assert client.ask(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code == ErrorCode.illegal_sasl_state
        assert client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=b"").error_code == ErrorCode.illegal_sasl_state
        assert metadata_of(client)


# -- sessions of limited length (KIP-368), on a clock that the test moves


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def limited_broker(clock: ManualClock) -> Iterator[Broker]:
    with sasl_broker({"connections.max.reauth.ms": 60_000}, clock) as broker:
        add_scram_users(broker)
        yield broker


@pytest.fixture
def limited(limited_broker: Broker) -> Iterator[RawClient]:
    with RawClient(limited_broker.bootstrap_servers) as client:
        yield client


def test_a_client_logs_in_again_before_its_session_ends(limited: RawClient, clock: ManualClock) -> None:
    assert log_in(limited, PlainClient(*ALICE)).session_lifetime == timedelta(minutes=1)
    for _ in range(3):
        clock.advance(50_000)
        assert log_in(limited, PlainClient(*ALICE)).session_lifetime == timedelta(minutes=1)
        assert metadata_of(limited)


def test_an_expired_session_reads_nothing_but_a_login(limited: RawClient, clock: ManualClock) -> None:
    log_in(limited, PlainClient(*ALICE))
    clock.advance(60_000)
    log_in(limited, PlainClient(*ALICE))
    assert metadata_of(limited)
    clock.advance(60_000)
    with pytest.raises(ClosedByPeer):
        metadata_of(limited)


def test_a_login_cannot_change_the_user(limited: RawClient, clock: ManualClock) -> None:
    log_in(limited, PlainClient(*ALICE))
    clock.advance(1000)
    answer = log_in(limited, PlainClient("bob", "bob-secret"))
    assert answer.error_code == ErrorCode.sasl_authentication_failed
    assert answer.error_message == "Cannot change principals during re-authentication from User.alice: User.bob"
    assert limited.is_closed_by_peer()


def test_a_login_cannot_change_the_mechanism(limited: RawClient, clock: ManualClock) -> None:
    log_in(limited, PlainClient(*ALICE))
    clock.advance(1000)
    answer = log_in(limited, ScramClient("SCRAM-SHA-256", *ALICE))
    assert answer.error_code == ErrorCode.sasl_authentication_failed
    assert "is not supported for re-authentication of mechanism 'PLAIN'" in answer.error_message
    assert limited.is_closed_by_peer()


def test_a_second_login_that_fails_says_so(limited: RawClient, clock: ManualClock) -> None:
    log_in(limited, ScramClient("SCRAM-SHA-256", *ALICE))
    clock.advance(1000)
    answer = log_in(limited, ScramClient("SCRAM-SHA-256", "alice", "wrong"))
    assert answer.error_message.startswith("Authentication failed during re-authentication due to invalid credentials")


def test_a_client_logs_in_again_at_most_once_a_second(limited: RawClient, clock: ManualClock) -> None:
    log_in(limited, PlainClient(*ALICE))
    log_in(limited, PlainClient(*ALICE))
    clock.advance(999)
    assert limited.ask(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code == ErrorCode.illegal_sasl_state
    clock.advance(1)
    log_in(limited, PlainClient(*ALICE))


def test_a_failed_login_is_answered_after_the_delay(clock: ManualClock) -> None:
    with (
        sasl_broker({"connection.failed.authentication.delay.ms": 5000}, clock) as broker,
        RawClient(broker.bootstrap_servers, timeout_s=0.2) as client,
    ):
        client.ask(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        client.send(Api.SASL_AUTHENTICATE, 2, auth_bytes=b"\0alice\0wrong")
        client.send(Api.API_VERSIONS, 0)  # not read: the connection is muted, and then closed
        with pytest.raises(TimeoutError):
            client.read_bytes(1)
        client.socket.settimeout(10)
        pass_time(broker, clock, 5000)
        assert client.receive().error_code == ErrorCode.sasl_authentication_failed
        with pytest.raises(ClosedByPeer):
            client.receive()


# -- metrics


def test_logins_are_counted(limited_broker: Broker, limited: RawClient, clock: ManualClock) -> None:
    def counts() -> tuple[int, int, int, int]:
        (one,) = limited_broker.core.metrics.logins.values()
        return one.succeeded, one.failed, one.succeeded_again, one.failed_again

    log_in(limited, PlainClient(*ALICE))
    assert counts() == (1, 0, 0, 0)
    log_in(limited, PlainClient(*ALICE))
    assert counts() == (1, 0, 1, 0)
    clock.advance(1000)
    log_in(limited, PlainClient("alice", "wrong"))
    assert counts() == (1, 0, 1, 1)
    with RawClient(limited_broker.bootstrap_servers) as client:
        client.ask(Api.SASL_HANDSHAKE, 1, mechanism="GSSAPI")
    assert counts() == (1, 1, 1, 1)


# -- settings


def test_a_changed_jaas_line_is_in_force_for_the_next_login() -> None:
    """The line of a listener cannot change while the broker runs, as in Kafka; the line of all listeners can."""
    name, own = "sasl.jaas.config", "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    with Broker(
        config={
            **{setting: value for setting, value in CONFIG.items() if setting != own},
            name: PLAIN_JAAS,
            "password.encoder.secret": "encoder",
        }
    ) as broker:
        with RawClient(broker.bootstrap_servers) as client:
            log_in(client, PlainClient(*ALICE))
            line = PLAIN_JAAS.replace("alice-secret", "newer")
            answer = client.ask(
                Api.INCREMENTAL_ALTER_CONFIGS, 0, validate_only=False,
                resources=[{
                    "resource_type": 4, "resource_name": "0",
                    "configs": [{"name": name, "config_operation": 0, "value": line}],
                }],
            )  # fmt: skip
            assert answer.responses[0].error_code == ErrorCode.none, answer
            assert metadata_of(client)
        with RawClient(broker.bootstrap_servers) as client:
            assert log_in(client, PlainClient(*ALICE)).error_code == ErrorCode.sasl_authentication_failed
        with RawClient(broker.bootstrap_servers) as client:
            assert log_in(client, PlainClient("alice", "newer")).error_code == ErrorCode.none


@pytest.mark.parametrize(("tags", "is_read"), [(32, True), (33, False)])
def test_a_header_before_the_login_has_few_tagged_fields(broker: Broker, tags: int, is_read: bool) -> None:
    header = pack(">hhih", Api.API_VERSIONS, 3, 1, -1)
    section = bytes([tags]) + b"".join(bytes([number + 1, 0]) for number in range(tags))
    with RawClient(broker.bootstrap_servers) as client:
        client.send_frame(header + section + b"\x02a\x02b\x00")
        if is_read:
            assert client.read_frame()[4:6] == b"\x00\x00"
        else:
            assert client.is_closed_by_peer()
