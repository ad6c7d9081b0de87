"""OAUTHBEARER: messages, tokens without a signature, and signed tokens that are valid or not."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.properties import ConfigError
from headrace.security.sasl.jwt_validation import JwtValidator, KeySet, KeySetError
from headrace.security.sasl.mechanism import AuthenticationFailed
from headrace.security.sasl.oauthbearer import INSUFFICIENT_SCOPE, OAuthBearerServer, TokenRefused, ValidToken
from headrace.security.sasl.unsecured_jws import UnsecuredValidator
from token_harness import CLAIMS, NOW_S, ec_key, ed_key, key_set, part, public_keys, rsa_key, signed, unsecured

NOW_MS = NOW_S * 1000
ALICE = ValidToken("alice", (NOW_S + 600) * 1000)


def accepts(token: str) -> ValidToken:
    if token != "good":
        raise TokenRefused("it is not good")
    return ValidToken("alice", 77)


# -- messages


@pytest.mark.parametrize(
    "message",
    [
        "n,,\x01auth=Bearer good\x01\x01",
        "n,a=alice,\x01auth=bearer  good\x01\x01",
        "n,,\x01auth=Bearer good\x01traceId=1 2 3\x01logicalCluster=lkc-1\x01\x01",
        "n,,\x01host=h\x01auth=BEARER good\x01\x01",
    ],
)
def test_a_good_token_logs_in(message: str) -> None:
    server = OAuthBearerServer(accepts)
    assert server.step(message.encode()) == b""
    assert (server.is_complete, server.authorization_id, server.expires_at_ms) == (True, "alice", 77)


def test_a_bad_token_gets_json_and_then_fails() -> None:
    server = OAuthBearerServer(accepts)
    assert server.step(b"n,,\x01auth=Bearer bad\x01\x01") == b'{"status":"invalid_token"}'
    assert not server.is_complete
    for answer in (b"\x01", b"n,,\x01auth=Bearer good\x01\x01"):  # a second token does not help
        with pytest.raises(AuthenticationFailed, match="not good") as failed:
            server.step(answer)
        assert failed.value.for_peer == '{"status":"invalid_token"}'


def test_nobody_logs_in_as_somebody_else() -> None:
    """CVE-2017-12610, for OAUTHBEARER."""
    server = OAuthBearerServer(accepts)
    with pytest.raises(AuthenticationFailed, match="authorization id"):
        server.step(b"n,a=bob,\x01auth=Bearer good\x01\x01")
    assert not server.is_complete


@pytest.mark.parametrize(
    "message",
    [
        b"", b"n,,", b"n,,\x01\x01", b"n,,\x01auth=Bearer good", b"n,,\x01auth=Bearer good\x01",
        b"y,,\x01auth=Bearer good\x01\x01",
        b"n,\x01auth=Bearer good\x01\x01", b"n,,x\x01auth=Bearer good\x01\x01", b"n,b=c,\x01auth=Bearer good\x01\x01",
        b"n,,\x01auth=Basic good\x01\x01", b"n,,\x01auth=good\x01\x01", b"n,,\x01auth=Bearer go od\x01\x01",
        b"n,,\x01auth=Bearer good\x01auth=Bearer good\x01\x01", b"n,,\x01auth=Bearer good\x01x\x01\x01",
        b"n,,\x01auth=Bearer good\x013=4\x01\x01", b"n,,\x01other=1\x01\x01", b"\xff",
        b"n,,\x01auth=Bearer " + b"x" * 70_000 + b"\x01\x01",
    ],
    ids=lambda message: str(message[:40]),
)  # fmt: skip
def test_a_malformed_message_is_refused(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed) as failed:
        OAuthBearerServer(accepts).step(message)
    assert failed.value.for_peer is None


def test_a_message_has_a_bounded_number_of_pairs() -> None:
    def message(count: int) -> bytes:
        names = ("x" + "".join(chr(97 + int(digit)) for digit in str(number)) for number in range(count - 1))
        return b"n,,\x01auth=Bearer good\x01" + "".join(f"{name}=1\x01" for name in names).encode() + b"\x01"

    OAuthBearerServer(accepts).step(message(100))
    for count in (101, 80_000):
        with pytest.raises(AuthenticationFailed, match="too many pairs"):
            OAuthBearerServer(accepts).step(message(count))


@given(st.binary(max_size=60) | st.text("n,=a\x01uthBerod ", max_size=60).map(str.encode))
def test_any_bytes_log_nobody_in(message: bytes) -> None:
    server = OAuthBearerServer(accepts)
    with suppress(AuthenticationFailed):
        server.step(message)
    assert not server.is_complete or b"Bearer good" in message


# -- tokens without a signature


def unsecured_validator(**options: str) -> UnsecuredValidator:
    given = {f"unsecuredValidator{name}": value for name, value in options.items()}
    made = UnsecuredValidator.from_options(given)
    assert made is not None
    return made


def test_an_unsecured_token() -> None:
    assert unsecured_validator(AllowableClockSkewMs="0").validate(unsecured(), NOW_MS) == ALICE
    named = unsecured_validator(PrincipalClaimName="upn", RequiredScope="read")
    assert named.validate(unsecured(upn="bob"), NOW_MS).principal_name == "bob"


def test_nobody_gets_unsecured_tokens_without_asking() -> None:
    assert UnsecuredValidator.from_options({}) is None
    assert UnsecuredValidator.from_options({"unsecuredLoginStringClaim_sub": "admin"}) is None
    with pytest.raises(ConfigError):
        UnsecuredValidator.from_options({"unsecuredValidatorAllowableClockSkewMs": "-1"})


def test_unsecured_tokens_that_are_refused() -> None:
    tokens = [
        "", "a.b.", "..", unsecured({"alg": "HS256"}), unsecured(exp=None), unsecured(exp=NOW_S), unsecured(exp="x"),
        unsecured(exp=True), unsecured(exp=1e400), unsecured(exp=10**400), unsecured(iat=NOW_S + 1),
        unsecured(nbf=NOW_S + 1),
        unsecured(sub=None), unsecured(sub=" "), unsecured(sub=7), unsecured(scope=7), unsecured() + "c2ln", signed(),
        f"{part([1])}.{part({})}.", unsecured(exp=NOW_S + 5, iat=NOW_S + 5),
    ]  # fmt: skip
    for token in tokens:
        with pytest.raises(TokenRefused) as refused:
            unsecured_validator(AllowableClockSkewMs="0").validate(token, NOW_MS)
        assert refused.value.to_json() == '{"status":"invalid_token"}'


def test_a_missing_scope_is_named() -> None:
    with pytest.raises(TokenRefused) as refused:
        unsecured_validator(RequiredScope="admin read").validate(unsecured(scope=["read"]), NOW_MS)
    assert json.loads(refused.value.to_json()) == {"status": INSUFFICIENT_SCOPE, "scope": "admin read"}


def test_clocks_may_differ() -> None:
    late = unsecured(exp=NOW_S - 2)
    assert unsecured_validator(AllowableClockSkewMs="3000").validate(late, NOW_MS).principal_name == "alice"
    with pytest.raises(TokenRefused, match="expired"):
        unsecured_validator(AllowableClockSkewMs="1000").validate(late, NOW_MS)


# -- signed tokens


def validator(**rules: Any) -> JwtValidator:
    keys = KeySet.from_json(key_set())
    return JwtValidator(lambda _: keys, skew_ms=rules.pop("skew_ms", 0), **rules)


@pytest.mark.parametrize(
    ("algorithm", "key_id", "key"),
    [("RS256", "rsa", rsa_key), ("RS512", "rsa", rsa_key), ("PS256", "rsa", rsa_key), ("ES256", "ec", ec_key),
     ("EdDSA", "ed", ed_key)],
)  # fmt: skip
def test_a_signed_token(algorithm: str, key_id: str, key: Any) -> None:
    assert validator().validate(signed(algorithm, key_id, key()), NOW_MS) == ALICE


def test_issuer_and_audience() -> None:
    rules = {"issuer": "https://idp", "audiences": frozenset({"kafka", "other"})}
    for audience in ("kafka", ["x", "kafka"]):
        assert validator(**rules).validate(signed(iss="https://idp", aud=audience), NOW_MS) == ALICE
    for wrong in ({"iss": "https://idp2"}, {"aud": "x"}, {"aud": None}, {"iss": None}, {"aud": ["x"]}, {"aud": 7}):
        with pytest.raises(TokenRefused):
            validator(**rules).validate(signed(**{"iss": "https://idp", "aud": "kafka", **wrong}), NOW_MS)


def test_the_name_may_be_in_another_claim() -> None:
    assert validator(principal_claim="upn").validate(signed(upn="bob"), NOW_MS).principal_name == "bob"


def forged_with_the_public_key() -> str:
    """The classical attack: HS256, with the public key as the secret."""
    import hashlib
    import hmac
    from base64 import urlsafe_b64encode

    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    public = rsa_key().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    text = f"{part({'alg': 'HS256', 'kid': 'rsa'})}.{part(CLAIMS)}"
    signature = urlsafe_b64encode(hmac.digest(public, text.encode(), hashlib.sha256)).rstrip(b"=").decode()
    return f"{text}.{signature}"


def test_signed_tokens_that_are_refused() -> None:
    """A token is accepted only if a key of the set has signed it."""
    stranger = rsa_key("stranger")
    tokens = [
        unsecured(), unsecured({"alg": "none", "kid": "rsa"}) + "c2ln", forged_with_the_public_key(),
        signed("HS256", "rsa", "x" * 64), signed(key_id=""), signed(key_id="unknown"), signed(key=stranger),
        signed("ES256", "rsa", ec_key()), signed("RS256", "ec"), signed(exp=NOW_S), signed(exp=None), signed(iat=None),
        signed(iat=NOW_S + 1), signed(nbf=NOW_S + 1), signed(sub=None), signed()[:-8], "a.b.c", "",
        f"{part({'alg': 'RS256', 'kid': 'rsa', 'crit': ['x']})}.{part(CLAIMS)}.{signed().rpartition('.')[2]}",
        f"{part({'alg': ['RS256'], 'kid': 'rsa'})}.{part(CLAIMS)}.eA",
        f"{part({'alg': 'RS256', 'kid': 'x' * 2000})}.{part(CLAIMS)}.eA",
        signed().replace(signed().split(".")[1], part({**CLAIMS, "sub": "admin"})),
    ]  # fmt: skip
    for token in tokens:
        with pytest.raises(TokenRefused):
            validator().validate(token, NOW_MS)


def without_kid(key: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in key.items() if name != "kid"}


@pytest.mark.parametrize("is_named", [True, False])
def test_a_token_without_a_key_id_has_the_only_key_for_its_algorithm(is_named: bool) -> None:
    """As in Kafka. A key for encryption, and keys for other algorithms, are no candidates."""
    given = public_keys() if is_named else [without_kid(key) for key in public_keys()]
    keys = KeySet.from_json(key_set(*given, {**given[0], "use": "enc"}, {**given[0], "kid": "x", "alg": "RS512"}))
    signing = JwtValidator(lambda _: keys, skew_ms=0)
    assert signing.validate(signed(key_id=None), NOW_MS) == ALICE
    assert signing.validate(signed("ES256", None, ec_key()), NOW_MS) == ALICE
    assert signing.validate(signed("EdDSA", None, ed_key()), NOW_MS) == ALICE
    for refused in (signed(key_id=None, key=rsa_key("stranger")), signed("RS384", None)[:-4]):
        with pytest.raises(TokenRefused):
            signing.validate(refused, NOW_MS)


def test_a_token_without_a_key_id_is_refused_if_several_keys_are_for_its_algorithm() -> None:
    from jwt.algorithms import RSAAlgorithm

    other = RSAAlgorithm.to_jwk(rsa_key("stranger").public_key(), as_dict=True)
    for keys in (key_set(public_keys()[0], {**other, "kid": "other"}), key_set(public_keys()[0], other)):
        ambiguous = KeySet.from_json(keys)
        with pytest.raises(TokenRefused, match="2 keys are for RS256"):
            JwtValidator(lambda _, keys=ambiguous: keys).validate(signed(key_id=None), NOW_MS)  # type: ignore[misc]
        assert JwtValidator(lambda _, keys=ambiguous: keys, skew_ms=0).validate(signed(), NOW_MS) == ALICE  # type: ignore[misc]


def test_a_token_that_names_a_key_needs_a_key_of_that_name() -> None:
    keys = KeySet.from_json(key_set(without_kid(public_keys()[0])))
    with pytest.raises(TokenRefused, match="no key with the id"):
        JwtValidator(lambda _: keys).validate(signed(), NOW_MS)


@given(st.text('abc.=-_{}[]"0', max_size=40))
def test_any_text_is_refused(token: str) -> None:
    with pytest.raises(TokenRefused):
        validator().validate(token, NOW_MS)


def test_a_deep_token_is_refused() -> None:
    import base64

    deep = base64.urlsafe_b64encode(b"[" * 40_000).rstrip(b"=").decode()
    with pytest.raises(TokenRefused):
        validator().validate(f"{deep}.{deep}.{deep}", NOW_MS)


# -- key sets


def test_keys_that_cannot_check_signatures_are_left_out() -> None:
    good, *_ = public_keys()
    bad = [{"kty": "oct", "kid": "o", "k": "c2VjcmV0"}, {**good, "kid": "enc", "use": "enc"}, {"kty": "RSA"}, 7]
    keys = KeySet.from_json(json.dumps({"keys": [good, *bad]}).encode())
    assert len(keys) == 1
    assert "rsa" in keys


def test_weak_and_malformed_keys_and_other_algorithms_are_refused() -> None:
    from jwt.algorithms import RSAAlgorithm

    weak = RSAAlgorithm.to_jwk(rsa_key("weak", 1024).public_key(), as_dict=True)
    pinned = {**public_keys()[0], "kid": "pinned", "alg": "RS512"}
    broken = {"kty": "RSA", "kid": "broken", "n": "?", "e": "AQAB"}
    keys = KeySet.from_json(key_set({**weak, "kid": "weak"}, pinned, broken))
    for key_id in ("weak", "pinned", "broken", "missing"):
        with pytest.raises(TokenRefused):
            keys.key_for(key_id, "RS256")
    assert keys.key_for("pinned", "RS512")


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"keys":7}', b'{"keys":[]}', b"[" * 9999, b"\xff"])
def test_what_is_no_key_set(content: bytes) -> None:
    with pytest.raises(KeySetError):
        KeySet.from_json(content)
