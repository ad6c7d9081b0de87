"""Makes tokens and key sets, good and bad."""

from __future__ import annotations

import base64
import json
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

NOW_S = 1_800_000_000
CLAIMS: dict[str, Any] = {"sub": "alice", "iat": NOW_S - 10, "exp": NOW_S + 600, "scope": "read write"}


@cache
def rsa_key(name: str = "rsa", bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


@cache
def ec_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@cache
def ed_key() -> ed25519.Ed25519PrivateKey:
    return ed25519.Ed25519PrivateKey.generate()


def public_keys() -> list[dict[str, Any]]:
    return [
        {**RSAAlgorithm.to_jwk(rsa_key().public_key(), as_dict=True), "kid": "rsa", "use": "sig"},
        {**ECAlgorithm.to_jwk(ec_key().public_key(), as_dict=True), "kid": "ec"},
        {**OKPAlgorithm.to_jwk(ed_key().public_key(), as_dict=True), "kid": "ed"},
    ]


def key_set(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": list(keys) or public_keys()}).encode()


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def signed(algorithm: str = "RS256", key_id: str | None = "rsa", key: Any = None, **claims: Any) -> str:
    """A token with these claims; None leaves a claim out."""
    given = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    headers = {} if key_id is None else {"kid": key_id}
    return jwt.encode(given, rsa_key() if key is None else key, algorithm=algorithm, headers=headers)


def unsecured(header: object = None, **claims: Any) -> str:
    given = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    return f"{part(header or {'alg': 'none'})}.{part(given)}."
