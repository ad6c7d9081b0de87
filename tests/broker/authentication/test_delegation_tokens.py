"""Delegation tokens in the tree: made by one broker, known to the others, changed by several, deleted at their end."""

import asyncio
import json
import logging
from types import SimpleNamespace

import pytest
from cluster_member_harness import fail_first_read, until

from headrace.broker.authentication.delegation_tokens import DelegationTokens
from headrace.broker.authentication.stored_tokens import StoredTokens
from headrace.broker.authentication.token_service import NoTokens, start_tokens
from headrace.broker.configs.broker_config import BrokerConfig
from headrace.broker.start_error import StartError
from headrace.coordination.interface import ConnectionLostError
from headrace.coordination.tree.host import TreeHost
from headrace.protocol.errors import (
    DelegationTokenAuthDisabled,
    DelegationTokenExpired,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    InvalidPrincipalType,
    InvalidRequest,
    UnknownServerError,
)
from headrace.runtime.timer import Timer
from headrace.security.principal import Principal
from headrace.security.sasl.scram import credential_of as credential_of_password
from headrace.security.sasl.scram import salted_password
from headrace.security.tokens.token import DelegationToken, hmac_of, password_of
from headrace.testing import ManualClock
from headrace.testing.expiring_coordination import ExpiringCoordination

ALICE, BOB, CAROL = (Principal("User", name) for name in ("alice", "bob", "carol"))
KEY = "cluster-secret"
SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
HOUR_MS = 3_600_000


class TokensHarness:
    """The delegation tokens of one broker."""

    def __init__(self, tree, clock, folder, key=KEY, **settings):
        properties = {f"delegation.token.{name}": str(value) for name, value in settings.items()}
        self.config = BrokerConfig.load({"log.dirs": str(folder), "delegation.token.secret.key": key, **properties})
        loop = asyncio.get_running_loop()
        self.coordination = ExpiringCoordination(tree, call_soon=loop.call_soon)
        self.timer = Timer(clock)
        self.runtime = SimpleNamespace(clock=clock, loop=loop, timer=self.timer)
        self.stored = StoredTokens(self.coordination, clock, key)
        self.tokens = DelegationTokens(self.config, self.runtime, self.stored)

    def ids(self):
        return {issued.token.token_id for issued in self.stored}


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def brokers(clock, tmp_path):
    """Two brokers that share a tree."""
    tree = TreeHost(clock)
    made = [TokensHarness(tree, clock, tmp_path) for _ in range(2)]
    for each in made:
        await each.tokens.start()
    yield made
    for each in made:
        await each.tokens.stop()


async def test_a_token_gets_to_the_other_broker(brokers):
    here, there = brokers
    issued = await here.tokens.create(ALICE, CAROL, [BOB], -1)
    token_id = issued.token.token_id
    assert issued.hmac == hmac_of(KEY, token_id)
    await until(lambda: there.ids() == {token_id})
    assert there.stored.get(token_id) == issued
    content, _ = await there.coordination.get(f"/delegation_token/tokens/{token_id}")
    assert json.loads(content)["tokenRequester"] == "User%3Acarol"
    (change,) = await there.coordination.children("/delegation_token/token_changes")
    assert change == "token_change_0000000000"
    assert (await there.coordination.get(f"/delegation_token/token_changes/{change}"))[0] == token_id.encode()


async def test_a_token_of_one_broker_is_renewed_and_deleted_at_another(brokers, clock):
    here, there = brokers
    issued = await here.tokens.create(ALICE, ALICE, [BOB], -1)
    clock.advance(HOUR_MS)
    # No waiting: the other broker looks for changes when it does not know the token.
    expiry_ms = await there.tokens.renew(issued.hmac, BOB, -1)
    assert expiry_ms == issued.token.expiry_ms + HOUR_MS
    await until(lambda: here.stored.get(issued.token.token_id).token.expiry_ms == expiry_ms)
    assert await there.tokens.expire(issued.hmac, ALICE, -1) == clock.wall_ms()
    assert await here.tokens.all() == []
    with pytest.raises(DelegationTokenNotFound):
        await here.tokens.renew(issued.hmac, ALICE, -1)


async def test_a_renewal_at_two_brokers_at_once_loses_nothing(brokers, clock):
    here, there = brokers
    issued = await here.tokens.create(ALICE, ALICE, [BOB], -1)
    clock.advance(1_000)
    results = await asyncio.gather(
        *(each.tokens.renew(issued.hmac, BOB, period) for each in brokers for period in (100_000, 200_000, 300_000))
    )
    await until(lambda: here.stored.get(issued.token.token_id) == there.stored.get(issued.token.token_id))
    assert here.stored.get(issued.token.token_id).token.expiry_ms in results


async def test_refusals_have_kafkas_codes(brokers, clock):
    tokens = brokers[0].tokens
    with pytest.raises(InvalidPrincipalType):
        await tokens.create(ALICE, ALICE, [Principal("Group", "g")], -1)
    issued = await tokens.create(ALICE, ALICE, [], 5_000)
    for change in (tokens.renew, tokens.expire):
        with pytest.raises(DelegationTokenNotFound):
            await change(b"unknown", ALICE, -1)
        with pytest.raises(DelegationTokenOwnerMismatch):
            await change(issued.hmac, BOB, 1)
    clock.advance(5_001)
    for change in (tokens.renew, tokens.expire):
        with pytest.raises(DelegationTokenExpired):
            await change(issued.hmac, ALICE, 1)


async def test_a_token_that_does_not_fit_into_a_znode_is_refused(brokers):
    with pytest.raises(InvalidRequest, match="more than ZooKeeper can store"):
        await brokers[0].tokens.create(ALICE, ALICE, [Principal("User", "x" * 1_000)] * 1_000, -1)


# -- logins


async def test_the_account_of_a_token(brokers, clock):
    here, there = brokers
    issued = await here.tokens.create(ALICE, CAROL, [], 10_000)
    await until(there.ids)
    for mechanism in (SHA_256, SHA_512):
        account = here.tokens.account_of(mechanism, issued.token.token_id)
        assert (account.user, account.expires_at_ms) == ("alice", clock.wall_ms() + 10_000)
        assert account == there.tokens.account_of(mechanism, issued.token.token_id)  # with the same salt
        credential = account.credential
        salted = salted_password(mechanism, password_of(issued.hmac).encode(), credential.salt, credential.iterations)
        assert credential_of_password(mechanism, salted, credential.salt, credential.iterations) == credential
        assert set(credential.salt) <= set(b"0123456789abcdefghijklmnopqrstuvwxyz")
    assert here.tokens.account_of(SHA_256, "unknown") is None
    clock.advance(10_000)
    assert here.tokens.account_of(SHA_256, issued.token.token_id) is not None
    clock.advance(1)  # before the token is deleted
    assert here.tokens.account_of(SHA_256, issued.token.token_id) is None


async def test_a_token_of_a_group_is_not_a_token_of_the_user_with_that_name(brokers, clock):
    """Kafka may have stored such a token."""
    here, _ = brokers
    times = (clock.wall_ms(), clock.wall_ms() + 10_000, clock.wall_ms() + 10_000)
    await here.stored.add(DelegationToken("of-a-group", Principal("Group", "alice"), BOB, (), *times))
    assert here.ids() == {"of-a-group"}
    assert here.tokens.account_of(SHA_256, "of-a-group") is None


async def test_an_expired_token_cannot_be_used_again_after_its_renewal_failed(brokers, clock):
    here, _ = brokers
    issued = await here.tokens.create(ALICE, ALICE, [], 10_000)
    await here.tokens.expire(issued.hmac, ALICE, -1)
    assert here.tokens.account_of(SHA_256, issued.token.token_id) is None


# -- expiry


async def test_expired_tokens_are_deleted(brokers, clock):
    here, there = brokers
    gone = await here.tokens.create(ALICE, ALICE, [], 10_000)
    kept = await here.tokens.create(ALICE, ALICE, [], -1)
    await until(lambda: len(there.ids()) == 2)
    clock.advance(HOUR_MS - 1)
    here.timer.advance()
    assert gone.token.token_id in here.ids()
    clock.advance(1)
    here.timer.advance()
    await until(lambda: here.ids() == there.ids() == {kept.token.token_id})
    assert await here.coordination.children("/delegation_token/tokens") == [kept.token.token_id]
    clock.advance(24 * HOUR_MS)
    here.timer.advance()  # the next sweep
    await until(lambda: not here.ids() and not there.ids())


async def test_a_token_that_another_broker_has_renewed_is_not_deleted(brokers, clock):
    here, there = brokers
    issued = await here.tokens.create(ALICE, ALICE, [], -1)
    await until(there.ids)
    clock.advance(23 * HOUR_MS)
    renewed_ms = await there.tokens.renew(issued.hmac, ALICE, -1)
    # This broker has missed the renewal.
    here.stored._put(issued)
    clock.advance(2 * HOUR_MS)
    here.timer.advance()
    await here.tokens._sweep
    assert await here.coordination.children("/delegation_token/tokens") == [issued.token.token_id]
    await here.tokens.renew(issued.hmac, ALICE, -1)
    assert here.stored.get(issued.token.token_id).token.expiry_ms > renewed_ms


# -- an existing tree, and faults


async def test_the_tokens_of_kafka_are_in_force(clock, tmp_path):
    """The znodes that Kafka 3.x has written: version 2 without a requester, version 3 with one."""
    tree = TreeHost(clock)
    broker = TokensHarness(tree, clock, tmp_path)
    now_ms = clock.wall_ms()
    times = {"issueTimestamp": now_ms, "maxTimestamp": now_ms + 10, "expiryTimestamp": now_ms + 5}
    for version, more in ((2, {}), (3, {"tokenRequester": "User%3Acarol"})):
        value = {
            "version": version,
            "owner": "User%3Aalice",
            "renewers": [],
            "tokenId": f"id{version}",
            **times,
            **more,
        }
        path = f"/delegation_token/tokens/id{version}"
        await broker.coordination.create(path, json.dumps(value).encode(), make_parents=True)
    await broker.tokens.start()
    tokens = {issued.token.token_id: issued for issued in broker.stored}
    assert {token_id: issued.token.requester.name for token_id, issued in tokens.items()} == {
        "id2": "alice",
        "id3": "carol",
    }
    assert tokens["id2"].hmac == hmac_of(KEY, "id2")
    await broker.tokens.stop()


@pytest.mark.parametrize("content", [b"", b"nonsense", DelegationToken("other", ALICE, ALICE, (), 0, 1, 1).to_json()])
async def test_a_znode_that_is_no_token_is_ignored(clock, tmp_path, content, caplog):
    broker = TokensHarness(TreeHost(clock), clock, tmp_path)
    await broker.coordination.create("/delegation_token/tokens/bad", content, make_parents=True)
    await broker.tokens.start()
    assert await broker.tokens.all() == []
    assert broker.tokens.account_of(SHA_256, "bad") is None
    assert "the delegation token in /delegation_token/tokens/bad is ignored" in caplog.text
    await broker.tokens.stop()


async def test_a_notification_that_names_no_token_is_ignored(brokers, caplog):
    here, there = brokers
    for content in (b"", b"../x", b"\xff", b"a\0b", b"unknown"):
        await here.coordination.create("/delegation_token/token_changes/token_change_", content, sequence=True)
    issued = await here.tokens.create(ALICE, ALICE, [], -1)
    await until(lambda: there.ids() == {issued.token.token_id})
    assert "names no token" in caplog.text


async def test_a_new_session_reads_everything_again(brokers):
    here, there = brokers
    kept = await here.tokens.create(ALICE, ALICE, [], -1)
    gone = await here.tokens.create(ALICE, ALICE, [], -1)
    await until(lambda: len(there.ids()) == 2)
    there.coordination.lose_session()
    await here.tokens.expire(gone.hmac, ALICE, -1)
    new = await here.tokens.create(BOB, BOB, [], -1)
    assert gone.token.token_id in there.ids()
    there.coordination.start_session()
    await until(lambda: there.ids() == {kept.token.token_id, new.token.token_id})


async def test_a_session_that_ends_between_the_first_read_and_the_start_is_noticed(brokers, clock, tmp_path):
    here, _ = brokers
    gone = await here.tokens.create(ALICE, ALICE, [], -1)
    there = TokensHarness(here.coordination._host, clock, tmp_path)
    await there.stored.load()
    assert there.ids() == {gone.token.token_id}
    there.coordination.lose_session()
    await here.tokens.expire(gone.hmac, ALICE, -1)
    there.coordination.start_session()
    await asyncio.sleep(0)
    there.stored.start()
    await until(lambda: there.ids() == set())
    await there.stored.stop()


async def test_a_request_that_cannot_read_everything_leaves_it_to_the_broker(brokers, monkeypatch):
    """A token that expires earlier now must not stay in force, because its notification was passed over."""
    here, there = brokers
    issued = await here.tokens.create(ALICE, ALICE, [], -1)
    await until(lambda: there.ids())
    there.coordination.lose_session()
    expiry_ms = await here.tokens.expire(issued.hmac, ALICE, 1_000)
    fail_first_read(monkeypatch, there.coordination)
    monkeypatch.setattr(there.coordination, "notify", there.stored._follower._session_changed)  # at once
    there.coordination.start_session()
    with pytest.raises(UnknownServerError):
        await there.tokens.all()
    await until(lambda: there.stored.get(issued.token.token_id).token.expiry_ms == expiry_ms)


async def test_a_change_whose_answer_is_lost_is_made_once(brokers, monkeypatch):
    here, there = brokers
    multi = here.coordination.multi
    lost = []

    async def lose_first_answer(operations):
        result = await multi(operations)
        if not lost:
            lost.append(operations)
            raise ConnectionLostError
        return result

    monkeypatch.setattr(here.coordination, "multi", lose_first_answer)
    issued = await here.tokens.create(ALICE, ALICE, [], -1)
    assert lost
    assert await here.coordination.children("/delegation_token/tokens") == [issued.token.token_id]
    lost.clear()
    assert await here.tokens.renew(issued.hmac, ALICE, 1_000) == issued.token.issue_ms + 1_000
    lost.clear()
    assert await here.tokens.expire(issued.hmac, ALICE, -1) == issued.token.issue_ms
    await until(lambda: not there.ids())


async def test_a_tree_that_does_not_answer_is_an_error(brokers):
    here, _ = brokers
    issued = await here.tokens.create(ALICE, ALICE, [], -1)
    here.coordination.lose_session()
    with pytest.raises(UnknownServerError):
        await here.tokens.create(ALICE, ALICE, [], -1)
    with pytest.raises(UnknownServerError):
        await here.tokens.renew(b"unknown", ALICE, -1)
    # What the broker knows stays in force.
    assert here.tokens.account_of(SHA_256, issued.token.token_id) is not None
    here.coordination.start_session()


# -- the choice


async def test_without_a_key_there_are_no_tokens(clock, tmp_path):
    config = BrokerConfig.load({"log.dirs": str(tmp_path)})
    tokens = await start_tokens(config, ExpiringCoordination(TreeHost(clock)), None)
    assert isinstance(tokens, NoTokens)
    assert tokens.account_of(SHA_256, "x") is None
    for refused in (
        tokens.create(ALICE, ALICE, [], 1),
        tokens.renew(b"", ALICE, 1),
        tokens.expire(b"", ALICE, 1),
        tokens.all(),
    ):
        with pytest.raises(DelegationTokenAuthDisabled):
            await refused
    await tokens.stop()


@pytest.mark.parametrize("name", ["secret", "master"])
async def test_both_names_of_the_key_count(clock, tmp_path, name):
    config = BrokerConfig.load({"log.dirs": str(tmp_path), f"delegation.token.{name}.key": KEY})
    coordination = ExpiringCoordination(TreeHost(clock), call_soon=asyncio.get_running_loop().call_soon)
    runtime = SimpleNamespace(clock=clock, loop=asyncio.get_running_loop(), timer=Timer(clock))
    tokens = await start_tokens(config, coordination, runtime)
    issued = await tokens.create(ALICE, ALICE, [], -1)
    assert issued.hmac == hmac_of(KEY, issued.token.token_id)
    await tokens.stop()


async def test_a_broker_does_not_start_if_it_cannot_read_the_tokens(clock, tmp_path):
    config = BrokerConfig.load({"log.dirs": str(tmp_path), "delegation.token.secret.key": KEY})
    coordination = ExpiringCoordination(TreeHost(clock))
    coordination.lose_session()
    runtime = SimpleNamespace(clock=clock, loop=asyncio.get_running_loop(), timer=Timer(clock))
    with pytest.raises(StartError, match="the delegation tokens cannot be read"):
        await start_tokens(config, coordination, runtime)


async def test_no_secret_is_logged_or_shown(brokers, clock, caplog):
    caplog.set_level(logging.DEBUG)
    tokens = brokers[0].tokens
    issued = await tokens.create(ALICE, ALICE, [], -1)
    await tokens.renew(issued.hmac, ALICE, -1)
    account = tokens.account_of(SHA_256, issued.token.token_id)
    await tokens.expire(issued.hmac, ALICE, -1)
    shown = f"{caplog.text}{issued!r}{[issued]!r}{account!r}"
    assert issued.token.token_id in shown
    for secret in (KEY, password_of(issued.hmac), issued.hmac.hex(), repr(issued.hmac)[2:-1]):
        assert secret not in shown
