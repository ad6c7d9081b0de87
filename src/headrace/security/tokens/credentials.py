"""The SCRAM credential of a delegation token. Its password is the HMAC of the token in base64."""

from __future__ import annotations

import hashlib
import hmac

from headrace.security.sasl.scram import HASHES, MIN_ITERATIONS, ScramCredential, credential_of
from headrace.security.tokens.token import password_of

_SALT_CHARACTERS = b"0123456789abcdefghijklmnopqrstuvwxyz"
_SALT_LENGTH = 26


def credential_of_token(mechanism: str, token_hmac: bytes) -> ScramCredential:
    """Returns the credential that every broker computes for a token. It takes some milliseconds.

    The salt looks like a random one, and depends only on the secret of the token.
    """
    seed = hmac.digest(token_hmac, f"salt of {mechanism}".encode(), "sha256")
    salt = bytes(_SALT_CHARACTERS[byte % len(_SALT_CHARACTERS)] for byte in seed[:_SALT_LENGTH])
    password = password_of(token_hmac).encode()
    salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password, salt, MIN_ITERATIONS)
    return credential_of(mechanism, salted, salt, MIN_ITERATIONS)
