"""The admin client makes, renews, ends and shows delegation tokens, and clients log in with them."""

import pytest

from headrace import Admin, AsyncAdmin, Broker, Consumer, Producer
from headrace.client.errors import BrokerError, ErrorCode, HeadraceError
from headrace.security.principal import Principal

USERS = {"alice": "alice-secret", "bob": "bob-secret"}
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        + " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
        + ";"
    ),
    "delegation.token.secret.key": "cluster-secret",
    "connection.failed.authentication.delay.ms": 0,
}
ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def broker():
    with Broker(config=SETTINGS) as broker:
        yield broker


def options_of(broker, user):
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": USERS[user],
    }


def with_token(broker, token, mechanism="SCRAM-SHA-512"):
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        **token.login_options(mechanism),
    }


@pytest.fixture
def alice(broker):
    with Admin(options_of(broker, "alice")) as admin:
        yield admin


@pytest.fixture
def bob(broker):
    with Admin(options_of(broker, "bob")) as admin:
        yield admin


def code_of(call, *arguments, **more):
    with pytest.raises(BrokerError) as caught:
        call(*arguments, **more)
    return caught.value.code


def test_the_life_of_a_token(alice, bob):
    token = alice.create_delegation_token(renewers=["User:bob"], max_lifetime_ms=2 * DAY_MS)
    assert (token.owner, token.requester, token.renewers) == (ALICE, ALICE, (BOB,))
    assert (token.expiry_ms - token.issue_ms, token.max_ms - token.issue_ms) == (DAY_MS, 2 * DAY_MS)
    assert token in alice.describe_delegation_tokens(["User:alice"])
    assert token in bob.describe_delegation_tokens()
    assert alice.describe_delegation_tokens(["User:nobody"]) == []
    assert alice.describe_delegation_tokens([]) == []
    renewed_ms = bob.renew_delegation_token(token.hmac, period_ms=60_000)
    assert renewed_ms < token.expiry_ms
    assert bob.expire_delegation_token(token.hmac, period_ms=30_000) < renewed_ms
    alice.expire_delegation_token(token.hmac)
    assert code_of(alice.renew_delegation_token, token.hmac) is ErrorCode.delegation_token_not_found


async def test_the_same_with_asyncio(broker):
    async with AsyncAdmin(options_of(broker, "alice")) as admin:
        token = await admin.create_delegation_token(owner="User:carol")
        assert (token.owner, token.requester) == (Principal("User", "carol"), ALICE)
        assert token in await admin.describe_delegation_tokens()
        with pytest.raises(BrokerError) as caught:
            await admin.renew_delegation_token(token.hmac)
        assert caught.value.code is ErrorCode.delegation_token_owner_mismatch


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_clients_log_in_with_a_token(broker, alice, mechanism):
    options = with_token(broker, alice.create_delegation_token(), mechanism)
    with Producer(config=options) as producer:
        producer.send("by-token", b"x").result(10)
    with Consumer(config=options, auto_offset_reset="earliest") as consumer:
        consumer.assign([("by-token", 0)])
        assert consumer.poll(timeout_ms=10_000)
    with Admin(options) as admin:
        assert code_of(admin.create_delegation_token) is ErrorCode.delegation_token_request_not_allowed


def test_a_token_that_has_ended_does_not_log_in(broker, alice):
    token = alice.create_delegation_token()
    alice.expire_delegation_token(token.hmac)
    with pytest.raises(HeadraceError, match="Authentication failed") as caught, Admin(with_token(broker, token)):
        pass
    assert token.password not in str(caught.value)


def test_mistakes(alice):
    with pytest.raises(ValueError, match="TYPE:NAME"):
        alice.create_delegation_token(renewers=["bob"])
    assert code_of(alice.create_delegation_token, renewers=["Group:g"]) is ErrorCode.invalid_principal_type


def test_the_secret_is_not_shown(alice):
    token = alice.create_delegation_token()
    assert token.token_id in repr(token)
    assert token.password not in repr(token)
    assert repr(token.hmac) not in repr(token)
