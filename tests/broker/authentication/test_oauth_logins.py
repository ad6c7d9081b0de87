"""OAUTHBEARER on a broker: the session ends with the token, keys come from a file, and failures are told as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sasl_harness import CONFIG

from headrace import Broker
from headrace.broker.broker import StartError
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.security.principal import Principal
from headrace.testing import ClosedByPeer, ManualClock, RawClient
from token_harness import NOW_S, key_set, rsa_key, signed, unsecured

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(wall_ms=NOW_S * 1000)


@pytest.fixture
def broker(tmp_path: Path, clock: ManualClock) -> Iterator[Broker]:
    url = (tmp_path / "keys.json").as_uri()
    (tmp_path / "keys.json").write_bytes(key_set())
    config = {
        **CONFIG,
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": url,
        "org.apache.kafka.sasl.oauthbearer.allowed.urls": url,
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.clock.skew.seconds": 0,
        "connections.max.reauth.ms": 3_600_000,
    }
    with Broker(config=config, clock=clock) as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap_servers) as client:
        assert client.ask(Api.SASL_HANDSHAKE, 1, mechanism="OAUTHBEARER").error_code == ErrorCode.none
        yield client


def first(token: str) -> bytes:
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()


def test_the_session_ends_with_the_token(broker: Broker, client: RawClient, clock: ManualClock) -> None:
    answer = client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=first(signed(aud="kafka")))
    assert (answer.error_code, answer.auth_bytes) == (ErrorCode.none, b"")
    assert answer.session_lifetime == timedelta(minutes=10)
    assert [one.principal for one in broker.core.connections] == [Principal("User", "alice")]
    clock.advance(599_999)
    assert client.ask(Api.METADATA, 1, topics=[]).brokers
    clock.advance(1)
    with pytest.raises(ClosedByPeer):
        client.ask(Api.METADATA, 1, topics=[])


@pytest.mark.parametrize(
    "token",
    [
        lambda: signed(),
        lambda: signed(aud="other"),
        lambda: signed(aud="kafka", exp=NOW_S - 1),
        lambda: signed(aud="kafka", key=rsa_key("stranger")),
        lambda: unsecured(aud="kafka"),
    ],
    ids=["no audience", "other audience", "expired", "other key", "unsigned"],
)
def test_an_invalid_token_is_told_as_json(client: RawClient, token) -> None:  # type: ignore[no-untyped-def]
    answer = client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=first(token()))
    assert (answer.error_code, answer.auth_bytes) == (ErrorCode.none, b'{"status":"invalid_token"}')
    answer = client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=b"\x01")
    assert answer.error_code == ErrorCode.sasl_authentication_failed
    assert answer.error_message == '{"status":"invalid_token"}'
    assert client.is_closed_by_peer()


def test_unsecured_tokens_where_they_are_asked_for(clock: ManualClock) -> None:
    config = {
        **CONFIG,
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.jaas.config": f'{MODULE} unsecuredValidatorAllowableClockSkewMs="0";',
    }
    with Broker(config=config, clock=clock) as broker, RawClient(broker.bootstrap_servers) as client:
        client.ask(Api.SASL_HANDSHAKE, 1, mechanism="OAUTHBEARER")
        answer = client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=first(unsecured(sub="bob")))
        assert answer.error_code == ErrorCode.none
        assert [one.principal.name for one in broker.core.connections] == ["bob"]


@pytest.mark.parametrize("content", [None, b"", b'{"keys":[]}'], ids=["missing", "empty", "no keys"])
def test_a_broker_does_not_start_without_the_keys_of_its_file(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "keys.json"
    if content is not None:
        file.write_bytes(content)
    config = {
        **CONFIG,
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": file.as_uri(),
        "org.apache.kafka.sasl.oauthbearer.allowed.urls": file.as_uri(),
    }
    with pytest.raises(StartError, match="is not a file with keys for tokens"):
        Broker(config=config).start()
