"""A connection logs in before its first request, and renews its login without losing requests."""

import asyncio

import pytest
from fake_broker import SERVED, FakeBroker, authenticated, running, scram_server

from headrace.client.connection import Connection
from headrace.client.errors import BrokerUnreachable, SaslAuthenticationFailed, UnsupportedMechanism
from headrace.client.security.connection_security import ConnectionSecurity
from headrace.client.security.credentials import PasswordCredentials
from headrace.protocol.api import Api
from headrace.protocol.kio import ErrorCode

SECRET = "secret"
SCRAM = {name: scram_server(name, "alice", SECRET) for name in ("SCRAM-SHA-256", "SCRAM-SHA-512")}
METADATA = {
    "topics": [],
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}
LOGIN = [Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE]


def with_password(mechanism="PLAIN", password=SECRET):
    return ConnectionSecurity(credentials=PasswordCredentials(mechanism, "alice", password))


async def connect(broker, security=None, **options):
    return await Connection.open(*broker.address, client_id="c", security=security or with_password(), **options)


@pytest.mark.parametrize(("mechanism", "rounds"), [("PLAIN", 1), ("SCRAM-SHA-256", 2), ("SCRAM-SHA-512", 2)])
async def test_logs_in_before_the_first_request(mechanism, rounds):
    async with running(FakeBroker(SCRAM)) as broker:
        connection = await connect(broker, with_password(mechanism))
        await connection.ask(Api.METADATA, **METADATA)
        await connection.close()
    authenticate = [Api.SASL_AUTHENTICATE] * rounds
    assert broker.seen == [Api.API_VERSIONS, Api.SASL_HANDSHAKE, *authenticate, Api.METADATA]


async def test_versions_may_be_unknown():
    """The controller's channel asks for no versions."""
    async with running(FakeBroker()) as broker:
        connection = await connect(broker, learns_versions=False)
        await connection.close()
    assert broker.seen == LOGIN


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_a_wrong_password_is_an_error_that_says_so(mechanism):
    async with running(FakeBroker(SCRAM)) as broker:
        with pytest.raises(SaslAuthenticationFailed) as error:
            await connect(broker, with_password(mechanism, "wrong horse"))
    assert f"rejected the login by {mechanism}: Authentication failed" in str(error.value)
    assert "sasl.jaas.config" in str(error.value)
    assert "wrong horse" not in str(error.value)
    assert not isinstance(error.value, BrokerUnreachable)


async def test_a_mechanism_that_the_broker_does_not_offer():
    async with running(FakeBroker()) as broker:
        with pytest.raises(
            UnsupportedMechanism, match="does not offer the SASL mechanism SCRAM-SHA-256; it offers PLAIN"
        ):
            await connect(broker, with_password("SCRAM-SHA-256"))


@pytest.mark.parametrize("has_api", [True, False])
async def test_a_listener_without_sasl(has_api):
    served = SERVED if has_api else {Api.API_VERSIONS: (0, 3)}
    async with running(FakeBroker(served=served)) as broker:
        illegal = {"error_code": ErrorCode.illegal_sasl_state.value, "mechanisms": []}
        broker.answers[Api.SASL_HANDSHAKE] = lambda _: illegal
        with pytest.raises(UnsupportedMechanism, match=r"has no SASL: set security\.protocol to PLAINTEXT"):
            await connect(broker)


async def test_an_older_broker_answers_in_version_0_without_a_lifetime():
    served = {**SERVED, Api.SASL_AUTHENTICATE: (0, 0)}
    async with running(FakeBroker(served=served, lifetimes_ms=[60_000])) as broker:
        connection = await connect(broker)
        await connection.ask(Api.METADATA, **METADATA)
        await connection.close()
    assert broker.logins == 1


# -- the renewal of a login


async def test_the_first_request_after_most_of_the_lifetime_renews_the_login():
    async with running(FakeBroker(lifetimes_ms=[60_000])) as broker:
        connection = await connect(broker)
        make_due(connection)
        answers = [connection.send(Api.METADATA, 12, METADATA) for _ in range(3)]
        assert connection.in_flight == 3
        await asyncio.gather(*answers)
        await connection.close()
    assert broker.seen[1:] == [*LOGIN, *LOGIN, *[Api.METADATA] * 3]
    assert broker.logins == 2


def make_due(connection):
    assert asyncio.get_running_loop().time() + 50 < connection._login._due < asyncio.get_running_loop().time() + 58
    connection._login._due = 0


async def test_requests_that_are_sent_already_keep_their_answers():
    async with running(FakeBroker(lifetimes_ms=[60_000])) as broker:
        connection = await connect(broker)
        early = [connection.send(Api.METADATA, 12, METADATA) for _ in range(3)]
        make_due(connection)
        late = connection.send(Api.METADATA, 12, METADATA)
        await asyncio.gather(*early, late)
        await connection.close()
    assert broker.seen[1:] == [*LOGIN, *[Api.METADATA] * 3, *LOGIN, Api.METADATA]


async def test_a_renewal_that_fails_fails_the_requests_that_wait_for_it():
    async with running(FakeBroker(lifetimes_ms=[60_000])) as broker:
        connection = await connect(broker)
        rejected = authenticated(b"", code=ErrorCode.sasl_authentication_failed.value, message="expired")
        broker.answers[Api.SASL_AUTHENTICATE] = lambda _: rejected
        make_due(connection)
        waiting = [connection.send(Api.METADATA, 12, METADATA) for _ in range(2)]
        for request in waiting:
            with pytest.raises(SaslAuthenticationFailed, match="expired"):
                await request
        assert connection.is_closed
    assert Api.METADATA not in broker.seen


async def test_closing_during_a_renewal():
    async with running(FakeBroker(lifetimes_ms=[60_000])) as broker:
        connection = await connect(broker)
        broker.answers[Api.SASL_AUTHENTICATE] = lambda _: None
        make_due(connection)
        waiting = connection.send(Api.METADATA, 12, METADATA)
        await connection.close()
        with pytest.raises(BrokerUnreachable):
            await waiting
