"""Tokens with a signature: JSON Web Tokens that an OpenID provider has signed with a key of its key set (JWKS).

What is checked, in this order: the form; that the algorithm is asymmetric (``none`` and HS* are refused: with HS*,
anybody with the public key could sign); that the key set has the key that the token names, and that the key is for
that algorithm, or, for a token that names no key, that exactly one key is for that algorithm; the signature; expiry,
issue and begin against the clock; issuer, audience; the user's name.

PyJWT checks the signature. It is imported with the first key, because a broker without OAUTHBEARER starts faster
without it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.security.sasl.oauthbearer import TokenRefused, ValidToken
from headrace.security.sasl.token_claims import Claims, check_times, decode_part, scopes, text

if TYPE_CHECKING:
    from jwt import PyJWK

#: The algorithms that a key of a type may be used with.
_ALGORITHMS = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
ASYMMETRIC = frozenset(name for names in _ALGORITHMS.values() for name in names)
#: The curve that belongs to each algorithm.
_CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521", "EdDSA": "Ed25519"}
#: What a key without an id must have.
_MEMBERS = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")}
_MIN_RSA_BITS = 2048
_MAX_KEYS = 1000


class KeySetError(Exception):
    """A text is not a set of keys."""


Key = Mapping[str, Any]


class KeySet:
    """The public keys of a provider: by their ids, and those without an id."""

    def __init__(self, keys: Mapping[str, Key], unnamed: Sequence[Key] = ()) -> None:
        self._keys = keys
        self._unnamed = unnamed
        self._loaded: dict[tuple[str | None, str], PyJWK] = {}

    def __len__(self) -> int:
        return len(self._keys) + len(self._unnamed)

    def __contains__(self, key_id: str | None) -> bool:
        return key_id is None or key_id in self._keys

    @classmethod
    def from_json(cls, content: bytes) -> KeySet:
        """Keeps the keys that can check signatures. Other keys are left out: symmetric ones, and those for encryption.

        :raises KeySetError: if the content is not a key set, or has no such key.
        """
        try:
            found = json.loads(content)
            keys = found["keys"]
        except (ValueError, RecursionError, KeyError, TypeError):
            raise KeySetError("it is not a JSON Web Key Set") from None
        if not isinstance(keys, list) or len(keys) > _MAX_KEYS:
            raise KeySetError(f"it has no list of at most {_MAX_KEYS} keys")
        usable = [key for key in keys if _is_usable(key)]
        if not usable:
            raise KeySetError("it has no public key that is used for signatures")
        named = {key["kid"]: key for key in usable if "kid" in key}
        return cls(named, [key for key in usable if "kid" not in key])

    def key_for(self, key_id: str | None, algorithm: str) -> PyJWK:
        """
        :param key_id: the id that the token names. None: the only key that is for the algorithm.
        :raises TokenRefused: if there is no such key, or the key is not for the algorithm.
        """
        loaded = self._loaded.get((key_id, algorithm))
        if loaded is None:
            loaded = self._loaded[key_id, algorithm] = self._load(key_id, algorithm)
        return loaded

    def _load(self, key_id: str | None, algorithm: str) -> PyJWK:
        from jwt import PyJWK
        from jwt.exceptions import PyJWTError

        key = self._only_key(algorithm) if key_id is None else self._named_key(key_id, algorithm)
        try:
            made = PyJWK(dict(key), algorithm)
        except (PyJWTError, ValueError, TypeError) as error:
            raise TokenRefused(f"the key of the token cannot be used: {type(error).__name__}") from None
        if key["kty"] == "RSA" and made.key.key_size < _MIN_RSA_BITS:
            raise TokenRefused(f"the key of the token has fewer than {_MIN_RSA_BITS} bits")
        return made

    def _named_key(self, key_id: str, algorithm: str) -> Key:
        key = self._keys.get(key_id)
        if key is None:
            raise TokenRefused("the key set has no key with the id that the token names")
        if not _is_for(key, algorithm):
            raise TokenRefused(f"the key that the token names is not for {algorithm}")
        return key

    def _only_key(self, algorithm: str) -> Key:
        found = [key for key in (*self._keys.values(), *self._unnamed) if _is_for(key, algorithm)]
        if len(found) != 1:
            raise TokenRefused(f"the token does not name its key (kid), and {len(found)} keys are for {algorithm}")
        return found[0]


def _is_usable(key: Any) -> bool:
    """Whether a key of a set can check signatures."""
    if not isinstance(key, dict) or key.get("use", "sig") != "sig":
        return False
    kind = key.get("kty")
    if not isinstance(kind, str) or kind not in _ALGORITHMS:
        return False
    if "kid" in key:
        return isinstance(key["kid"], str)
    return all(isinstance(key.get(name), str) for name in _MEMBERS[kind])


def _is_for(key: Key, algorithm: str) -> bool:
    fits = algorithm in _ALGORITHMS[key["kty"]] and key.get("alg", algorithm) == algorithm
    return fits and key.get("crv") == _CURVES.get(algorithm)


@dataclass(frozen=True, slots=True)
class JwtValidator:
    #: Returns the key set that has a key id, if there is one; it may fetch the keys. Raises TokenRefused without keys.
    keys_with: Callable[[str | None], KeySet]
    #: One of them has to be among the token's audiences. Empty: the audience is not checked.
    audiences: frozenset[str] = frozenset()
    issuer: str | None = None
    skew_ms: int = 30_000
    scope_claim: str = "scope"
    principal_claim: str = "sub"

    def validate(self, token: str, now_ms: int) -> ValidToken:
        """
        :raises TokenRefused: if the token is not valid.
        """
        parts = token.split(".")
        if len(parts) != 3 or not all(parts):
            raise TokenRefused("a signed token has a header, claims and a signature")
        header = decode_part(parts[0])
        algorithm, key_id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in ASYMMETRIC:
            raise TokenRefused("the token is not signed with an asymmetric key")
        if "crit" in header:
            raise TokenRefused("the token demands an extension (crit)")
        if "kid" in header and (not isinstance(key_id, str) or not key_id or len(key_id) > 1000):
            raise TokenRefused("the token has a malformed id of its key (kid)")
        claims = self._verified(token, self.keys_with(key_id).key_for(key_id, algorithm), algorithm)
        expires_at_ms = check_times(claims, now_ms, self.skew_ms, needs_issued_at=True)
        self._check_parties(claims)
        scopes(claims, self.scope_claim)
        return ValidToken(text(claims, self.principal_claim), expires_at_ms)

    @staticmethod
    def _verified(token: str, key: PyJWK, algorithm: str) -> Claims:
        import jwt

        options: Any = {"verify_signature": True} | dict.fromkeys(
            ("verify_exp", "verify_nbf", "verify_iat", "verify_aud", "verify_iss", "verify_sub", "verify_jti"), False
        )
        try:
            claims: Claims = jwt.decode(token, key, algorithms=[algorithm], options=options)
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise TokenRefused(f"the token cannot be verified: {type(error).__name__}") from None
        return claims

    def _check_parties(self, claims: Claims) -> None:
        if self.issuer is not None and claims.get("iss") != self.issuer:
            raise TokenRefused("the token has another issuer")
        if self.audiences:
            audience = claims.get("aud")
            found = audience if isinstance(audience, list) else [audience]
            if not any(isinstance(one, str) and one in self.audiences for one in found):
                raise TokenRefused("the token is for another audience")
