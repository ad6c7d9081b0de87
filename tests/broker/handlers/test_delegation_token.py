"""The requests about delegation tokens, in all versions: who may ask, what is answered, and logins with a token."""

import logging
from contextlib import contextmanager

import pytest
from sasl_harness import USERS, add_scram_users, log_in, sasl_broker

from headrace import Broker
from headrace.protocol.api import Api, versions_of
from headrace.protocol.errors import ErrorCode
from headrace.security.sasl.plain import PlainClient
from headrace.security.sasl.scram_client import ScramClient
from headrace.security.tokens.token import hmac_of, password_of
from headrace.testing import ManualClock, RawClient, pass_time
from headrace.testing.raw_client import ClosedByPeer

KEY = "cluster-secret"
SETTINGS = {"delegation.token.secret.key": KEY}
CREATE, RENEW, EXPIRE, DESCRIBE = (
    Api.CREATE_DELEGATION_TOKEN, Api.RENEW_DELEGATION_TOKEN, Api.EXPIRE_DELEGATION_TOKEN, Api.DESCRIBE_DELEGATION_TOKEN,
)  # fmt: skip
DAY_MS = 86_400_000


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def broker(clock):
    with sasl_broker(SETTINGS, clock) as broker:
        add_scram_users(broker)
        yield broker


@contextmanager
def client_of(broker, user):
    with RawClient(broker.bootstrap_servers) as client:
        assert log_in(client, PlainClient(user, USERS[user])).error_code == ErrorCode.none
        yield client


@pytest.fixture
def alice(broker):
    with client_of(broker, "alice") as client:
        yield client


@pytest.fixture
def bob(broker):
    with client_of(broker, "bob") as client:
        yield client


def user(name):
    return {"principal_type": "User", "principal_name": name}


def create(client, *renewers, version=3, max_lifetime=-1, owner=None):
    fields = {"renewers": [user(name) for name in renewers], "max_lifetime": max_lifetime}
    if version >= 3:
        fields |= {"owner_principal_type": None if owner is None else "User", "owner_principal_name": owner}
    return client.ask(CREATE, version, **fields)


def describe(client, *owners, version=3, everyone=True):
    answer = client.ask(DESCRIBE, version, owners=None if everyone and not owners else [user(name) for name in owners])
    assert answer.error_code == ErrorCode.none
    return answer.tokens


@pytest.mark.parametrize("version", versions_of(CREATE))
def test_a_token_is_made(alice, clock, version):
    token = create(alice, "bob", version=version)
    assert token.error_code == ErrorCode.none
    assert (token.principal_type, token.principal_name) == ("User", "alice")
    now_ms = clock.wall_ms()
    times = (token.issue_timestamp, token.expiry_timestamp, token.max_timestamp)
    assert times == (now_ms, now_ms + DAY_MS, now_ms + 7 * DAY_MS)
    assert token.hmac == hmac_of(KEY, token.token_id)
    if version >= 3:
        assert (token.token_requester_principal_type, token.token_requester_principal_name) == ("User", "alice")


@pytest.mark.parametrize("version", versions_of(RENEW))
def test_a_token_is_renewed(alice, bob, broker, clock, version):
    token = create(alice, "bob")
    pass_time(broker, clock, 1_000)
    answer = bob.ask(RENEW, version, hmac=token.hmac, renew_period=-1)
    assert (answer.error_code, answer.expiry_timestamp) == (ErrorCode.none, clock.wall_ms() + DAY_MS)
    answer = bob.ask(RENEW, version, hmac=b"unknown", renew_period=-1)
    assert answer.error_code == ErrorCode.delegation_token_not_found


@pytest.mark.parametrize("version", versions_of(EXPIRE))
def test_a_token_expires(alice, clock, version):
    token = create(alice)
    answer = alice.ask(EXPIRE, version, hmac=token.hmac, expiry_time_period=500)
    assert (answer.error_code, answer.expiry_timestamp) == (ErrorCode.none, clock.wall_ms() + 500)
    answer = alice.ask(EXPIRE, version, hmac=token.hmac, expiry_time_period=-1)
    assert (answer.error_code, answer.expiry_timestamp) == (ErrorCode.none, clock.wall_ms())
    assert not describe(alice)
    answer = alice.ask(EXPIRE, version, hmac=token.hmac, expiry_time_period=-1)
    assert answer.error_code == ErrorCode.delegation_token_not_found


@pytest.mark.parametrize("version", versions_of(DESCRIBE))
def test_tokens_are_described(alice, version):
    made = create(alice, "bob", "carol")
    (token,) = describe(alice, version=version)
    assert (token.token_id, token.hmac) == (made.token_id, made.hmac)
    assert (token.principal_type, token.principal_name) == ("User", "alice")
    assert (token.issue_timestamp, token.expiry_timestamp, token.max_timestamp) == (
        made.issue_timestamp, made.expiry_timestamp, made.max_timestamp
    )  # fmt: skip
    assert [renewer.principal_name for renewer in token.renewers] == ["bob", "carol"]
    if version >= 3:
        assert token.token_requester_principal_name == "alice"


def test_who_is_named_as_owner_finds_tokens(alice):
    create(alice, "bob")
    for names, count in ((("alice",), 1), (("bob",), 1), (("x", "alice"), 1), (("x",), 0), ((), 0)):
        assert len(describe(alice, *names, everyone=False)) == count


def test_a_token_for_another_user(alice, bob):
    """Without an authorizer everybody may; the authorizer's rules are tested with the matrix of ACLs."""
    token = create(alice, owner="carol")
    assert (token.error_code, token.principal_name, token.token_requester_principal_name) == (
        ErrorCode.none, "carol", "alice",
    )  # fmt: skip
    # The requester sees the token, but neither renews nor ends it.
    assert [each.token_id for each in describe(alice, "alice")] == [token.token_id]
    for api, name in ((RENEW, "renew_period"), (EXPIRE, "expiry_time_period")):
        answer = alice.ask(api, 2, hmac=token.hmac, **{name: 1})
        assert answer.error_code == ErrorCode.delegation_token_owner_mismatch


def test_renewers_must_be_users(alice):
    answer = alice.ask(
        CREATE, 3, owner_principal_type=None, owner_principal_name=None, max_lifetime=-1,
        renewers=[{"principal_type": "Group", "principal_name": "g"}],
    )  # fmt: skip
    assert (answer.error_code, answer.token_id, answer.hmac) == (ErrorCode.invalid_principal_type, "", b"")


def test_times_have_64_bits(alice, clock):
    token = create(alice, max_lifetime=2**63 - 1)
    assert token.max_timestamp == clock.wall_ms() + 7 * DAY_MS
    answer = alice.ask(RENEW, 2, hmac=token.hmac, renew_period=2**63 - 1)
    assert answer.expiry_timestamp == clock.wall_ms() + DAY_MS
    answer = alice.ask(EXPIRE, 2, hmac=token.hmac, expiry_time_period=-(2**63))
    assert answer.error_code == ErrorCode.none


# -- who may ask at all


def refusals(client):
    """The codes of all four requests."""
    return {
        create(client).error_code,
        client.ask(RENEW, 2, hmac=b"x", renew_period=1).error_code,
        client.ask(EXPIRE, 2, hmac=b"x", expiry_time_period=1).error_code,
        client.ask(DESCRIBE, 3, owners=None).error_code,
    }


def test_a_client_that_is_not_authenticated_gets_no_token():
    with Broker(config=SETTINGS) as broker, RawClient(broker.bootstrap_servers) as client:
        assert refusals(client) == {ErrorCode.delegation_token_request_not_allowed}


def test_without_a_key_there_are_no_tokens():
    with sasl_broker() as broker, client_of(broker, "alice") as alice:
        assert refusals(alice) == {ErrorCode.delegation_token_auth_disabled}


def token_login(client, token, mechanism="SCRAM-SHA-256"):
    return log_in(client, ScramClient(mechanism, token.token_id, password_of(token.hmac), is_token=True))


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_client_logs_in_with_a_token(broker, alice, mechanism):
    token = create(alice)
    with RawClient(broker.bootstrap_servers) as client:
        answer = token_login(client, token, mechanism)
        assert answer.error_code == ErrorCode.none
        # The session ends with the token.
        assert answer.session_lifetime.total_seconds() * 1_000 == DAY_MS
        connection = next(each for each in broker.core.connections if each.login and each.login.is_token_authenticated)
        assert str(connection.principal) == "User:alice"
        # No token by token.
        assert refusals(client) == {ErrorCode.delegation_token_request_not_allowed}
        assert client.ask(Api.METADATA, 1, topics=None).brokers


def test_a_session_ends_with_its_token(broker, alice, clock):
    token = create(alice, max_lifetime=5_000)
    with RawClient(broker.bootstrap_servers) as client:
        assert token_login(client, token).error_code == ErrorCode.none
        pass_time(broker, clock, 5_001)
        with pytest.raises(ClosedByPeer):
            client.ask(Api.METADATA, 1, topics=None)


@pytest.mark.parametrize("end", ["expired", "deleted", "unknown", "wrong", "as a user"])
def test_a_login_without_a_valid_token_fails(broker, alice, clock, end):
    token = create(alice, max_lifetime=5_000)
    name, password, is_token = token.token_id, password_of(token.hmac), True
    if end == "expired":
        pass_time(broker, clock, 5_001)
    elif end == "deleted":
        alice.ask(EXPIRE, 2, hmac=token.hmac, expiry_time_period=-1)
    elif end == "unknown":
        name = "unknown"
    elif end == "wrong":
        password = password_of(hmac_of("another secret", name))
    else:
        is_token = False
    with RawClient(broker.bootstrap_servers) as client:
        answer = log_in(client, ScramClient("SCRAM-SHA-512", name, password, is_token=is_token))
        assert answer.error_code == ErrorCode.sasl_authentication_failed
        # The same words as for a user with a wrong password.
        assert answer.error_message == (
            "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512"
        )


def test_a_password_is_no_token_and_a_token_is_no_password(broker):
    """A user's password with tokenauth=true fails, although the user exists."""
    with RawClient(broker.bootstrap_servers) as client:
        answer = log_in(client, ScramClient("SCRAM-SHA-256", "alice", USERS["alice"], is_token=True))
        assert answer.error_code == ErrorCode.sasl_authentication_failed


def test_tokens_survive_a_restart(tmp_path, clock, caplog):
    caplog.set_level(logging.DEBUG)
    with sasl_broker({**SETTINGS, "log.dirs": str(tmp_path)}, clock) as broker, client_of(broker, "alice") as alice:
        token = create(alice)
    with (
        sasl_broker({**SETTINGS, "log.dirs": str(tmp_path)}, clock) as broker,
        RawClient(broker.bootstrap_servers) as client,
    ):
        assert token_login(client, token).error_code == ErrorCode.none
    assert password_of(token.hmac) not in caplog.text
    assert KEY not in caplog.text


def test_expired_tokens_are_deleted(broker, alice, clock):
    create(alice, max_lifetime=5_000)
    assert len(describe(alice)) == 1
    pass_time(broker, clock, 3_600_000)
    assert not describe(alice)
