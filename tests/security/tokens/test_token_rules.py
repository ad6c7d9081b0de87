"""Delegation tokens in Kafka's JSON, their secrets, and the rules about them."""

import json
from base64 import b64encode
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.security.principal import Principal
from headrace.security.sanitizer import desanitize, sanitize
from headrace.security.tokens import rules
from headrace.security.tokens.rules import Lifetimes, NotAUser, NotOwnerOrRenewer, TokenExpired
from headrace.security.tokens.token import (
    DelegationToken,
    MalformedTokenError,
    hmac_of,
    new_token_id,
    password_of,
    token_path,
)

ALICE, BOB, CAROL, DAVE = (Principal("User", name) for name in ("alice", "bob", "carol", "dave"))
TOKEN = DelegationToken("abc", ALICE, CAROL, (BOB,), 1_000, 8_000, 3_000)
LIFETIMES = Lifetimes(max_ms=7_000, renew_ms=2_000)

principals = st.builds(Principal, st.sampled_from(["User", "Group"]), st.text(max_size=20))
times = st.integers(0, 2**63 - 1)
tokens = st.builds(
    DelegationToken,
    st.builds(new_token_id),
    principals,
    principals,
    st.lists(principals, max_size=3).map(tuple),
    times,
    times,
    times,
)


# -- the form in the tree


def test_the_json_is_kafkas():
    assert json.loads(TOKEN.to_json()) == {
        "version": 3,
        "owner": "User%3Aalice",
        "tokenRequester": "User%3Acarol",
        "renewers": ["User%3Abob"],
        "issueTimestamp": 1000,
        "maxTimestamp": 8000,
        "expiryTimestamp": 3000,
        "tokenId": "abc",
    }


@given(tokens)
def test_a_token_survives_the_tree(token):
    assert DelegationToken.from_json(token.to_json()) == token


@pytest.mark.parametrize("version", [1, 2])
def test_before_version_3_the_owner_is_the_requester(version):
    value = json.loads(TOKEN.to_json()) | {"version": version}
    del value["tokenRequester"]
    assert DelegationToken.from_json(json.dumps(value).encode()) == replace(TOKEN, requester=ALICE)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 4},
        {"version": 0},
        {"version": "3"},
        {"owner": "alice"},
        {"owner": None},
        {"renewers": ["bob"]},
        {"renewers": 7},
        {"issueTimestamp": "now"},
        {"maxTimestamp": True},
        {"tokenId": ""},
        {"tokenId": "a/../b"},
        {"tokenId": "a" * 300},
        {"tokenId": None},
    ],
)
def test_what_is_no_token_is_refused(change):
    with pytest.raises(MalformedTokenError):
        DelegationToken.from_json(json.dumps(json.loads(TOKEN.to_json()) | change).encode())


@given(
    st.binary(max_size=60)
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps).map(str.encode)
)
def test_other_content_is_refused_too(content):
    with pytest.raises(MalformedTokenError):
        DelegationToken.from_json(content)


def test_the_path_of_a_token():
    assert token_path("abc") == "/delegation_token/tokens/abc"


def test_names_are_encoded_as_java_does_it():
    assert sanitize("User:a b*~_.-ü/+") == "User%3Aa%20b%2A%7E_.-%C3%BC%2F%2B"
    assert desanitize("a+b%2Bc") == "a b+c"


@given(st.text())
def test_a_name_survives_its_encoding(name):
    assert desanitize(sanitize(name)) == name


# -- secrets


def test_ids_are_random_and_names():
    made = {new_token_id() for _ in range(100)}
    assert len(made) == 100
    assert all(len(token_id) == 22 and "/" not in token_id for token_id in made)


def test_the_hmac_is_kafkas():
    # Computed by Java: Mac.getInstance("HmacSHA512") with the key "secret", of the bytes of "token-id".
    expected = "XX8uVzOO8ffB9wVSkYk/+Uyfi+0JWexBTDsJGS4WsMhODpo6VQV5W0Xl2/ROpCmoRI8BuJWgH3uHTXELz3fZNA=="
    assert len(hmac_of("secret", "token-id")) == 64
    assert password_of(b"\x00\xff") == b64encode(b"\x00\xff").decode()
    assert password_of(hmac_of("secret", "token-id")) == expected


# -- rules


def test_a_new_token():
    token = rules.create(ALICE, CAROL, [BOB], -1, LIFETIMES, 1_000)
    assert replace(token, token_id="abc") == TOKEN


@pytest.mark.parametrize(
    ("wanted_ms", "max_ms", "expiry_ms"), [(0, 8_000, 3_000), (500, 1_500, 1_500), (9_999, 8_000, 3_000)]
)
def test_a_token_lives_at_most_as_long_as_the_broker_allows(wanted_ms, max_ms, expiry_ms):
    token = rules.create(ALICE, ALICE, [], wanted_ms, LIFETIMES, 1_000)
    assert (token.max_ms, token.expiry_ms) == (max_ms, expiry_ms)


def test_times_have_64_bits():
    token = rules.create(ALICE, ALICE, [], -1, Lifetimes(2**63 - 1, 2**63 - 1), 1_000)
    assert (token.max_ms, token.expiry_ms) == (2**63 - 1, 2**63 - 1)
    assert rules.renew(token, ALICE, 2**63 - 1, Lifetimes(2**63 - 1, 2**63 - 1), 5_000).expiry_ms == 2**63 - 1


def test_owners_and_renewers_are_users():
    with pytest.raises(NotAUser):
        rules.create(ALICE, ALICE, [BOB, Principal("Group", "bob")], -1, LIFETIMES, 1_000)
    for kind in ("Group", "", "user"):
        with pytest.raises(NotAUser):
            rules.create(Principal(kind, "bob"), ALICE, [], -1, LIFETIMES, 1_000)


@pytest.mark.parametrize(
    ("wanted_ms", "now_ms", "expiry_ms"),
    [(-1, 2_500, 4_500), (0, 2_500, 4_500), (100, 2_500, 2_600), (9_999, 3_000, 5_000)],
)
def test_renewal(wanted_ms, now_ms, expiry_ms):
    assert rules.renew(TOKEN, BOB, wanted_ms, LIFETIMES, now_ms) == replace(TOKEN, expiry_ms=expiry_ms)


def test_a_renewal_does_not_prolong_the_maximum():
    token = replace(TOKEN, expiry_ms=7_500)
    assert rules.renew(token, ALICE, -1, LIFETIMES, 7_500).expiry_ms == 8_000


def test_who_may_renew():
    for principal in (ALICE, BOB):
        rules.renew(TOKEN, principal, -1, LIFETIMES, 3_000)
    for principal in (CAROL, DAVE, Principal("Group", "alice")):  # the requester alone may not
        with pytest.raises(NotOwnerOrRenewer):
            rules.renew(TOKEN, principal, -1, LIFETIMES, 3_000)
    with pytest.raises(TokenExpired):  # before the owner is checked, as in Kafka
        rules.renew(TOKEN, DAVE, -1, LIFETIMES, 3_001)


def test_expiry():
    assert rules.expire(TOKEN, BOB, -1, 2_000) is None
    assert rules.expire(TOKEN, ALICE, -1, 9_000) is None  # an expired token can be deleted
    assert rules.expire(TOKEN, ALICE, 0, 2_000) == replace(TOKEN, expiry_ms=2_000)
    assert rules.expire(TOKEN, ALICE, 99_999, 2_000) == replace(TOKEN, expiry_ms=8_000)
    with pytest.raises(TokenExpired):
        rules.expire(TOKEN, ALICE, 0, 3_001)
    with pytest.raises(NotOwnerOrRenewer):
        rules.expire(TOKEN, CAROL, -1, 3_001)


@pytest.mark.parametrize(
    ("requester", "owners", "may_describe", "expected"),
    [
        (ALICE, None, False, True),
        (BOB, None, False, True),
        (CAROL, None, False, True),
        (DAVE, None, False, False),
        (DAVE, None, True, True),
        (DAVE, [ALICE], True, True),
        (DAVE, [DAVE], True, False),
        (ALICE, [DAVE], True, False),
        (ALICE, [BOB], False, True),
        (ALICE, [], True, False),
    ],
)
def test_who_sees_a_token(requester, owners, may_describe, expected):
    assert (
        rules.is_visible(TOKEN, requester, None if owners is None else frozenset(owners), lambda _: may_describe)
        is expected
    )
