"""The keys of SCRAM (RFC 5802, RFC 7677), and Kafka's text form of a user's credential.

::

    SaltedPassword = PBKDF2(password, salt, iterations)
    ClientKey      = HMAC(SaltedPassword, "Client Key")        StoredKey = H(ClientKey)
    ServerKey      = HMAC(SaltedPassword, "Server Key")
    ClientProof    = ClientKey xor HMAC(StoredKey, AuthMessage)
    ServerSignature= HMAC(ServerKey, AuthMessage)

A server stores salt, StoredKey, ServerKey and iterations. A reader of these values cannot log in with them, but can
try passwords, and can pretend to be the server. So they are secrets, and ``repr`` does not show them.

Kafka does not normalize names and passwords (SASLprep), so neither does Headrace: they are UTF-8.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from functools import lru_cache

from headrace.security.sasl.mechanism import SCRAM_SHA_256, SCRAM_SHA_512

#: Fewer iterations are never accepted, by a server or by a client.
MIN_ITERATIONS = 4096
#: The most iterations that a user may be given. Kafka has the same limit.
MAX_ITERATIONS = 16384
#: The most iterations that a client computes, because a hostile server names the number. They take about 50 ms.
MAX_CLIENT_ITERATIONS = 100_000
#: The hash of each mechanism, by its name in hashlib.
HASHES = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}
DIGEST_BYTES = {SCRAM_SHA_256: 32, SCRAM_SHA_512: 64}
#: The number of each mechanism in requests.
MECHANISM_IDS = {SCRAM_SHA_256: 1, SCRAM_SHA_512: 2}

_SALT_CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
_SALT_LENGTH = 26


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The data that a server stores for a user's password."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    def to_text(self) -> str:
        """Returns Kafka's text, as the znode of a user has it."""
        encoded = (base64.b64encode(value).decode() for value in (self.salt, self.stored_key, self.server_key))
        return "salt={},stored_key={},server_key={},iterations={}".format(*encoded, self.iterations)

    @classmethod
    def from_text(cls, text: str) -> ScramCredential:
        """
        :raises ValueError: if the text is not a credential. The error does not show the text.
        """
        values = dict(part.strip().split("=", 1) for part in text.split(",") if "=" in part)
        if values.keys() != {"salt", "stored_key", "server_key", "iterations"}:
            raise ValueError("a SCRAM credential has salt, stored_key, server_key and iterations")
        try:
            salt, stored_key, server_key = (
                base64.b64decode(values[name], validate=True) for name in ("salt", "stored_key", "server_key")
            )
            return cls(salt, stored_key, server_key, int(values["iterations"]))
        except (binascii.Error, ValueError):
            raise ValueError("a SCRAM credential has a value that is neither base64 nor a number") from None


def new_salt() -> bytes:
    """Returns a random salt of the form that Kafka's tools make, 130 bits in letters and digits."""
    return "".join(secrets.choice(_SALT_CHARACTERS) for _ in range(_SALT_LENGTH)).encode()


@lru_cache(maxsize=64)
def salted_password(mechanism: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    """Returns the slow part of SCRAM. The last results are kept, because clients log in again and again."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password, salt, iterations)


def credential_of(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Returns the credential that belongs to a salted password."""
    stored_key = hashlib.new(HASHES[mechanism], client_key(mechanism, salted)).digest()
    return ScramCredential(salt, stored_key, server_key(mechanism, salted), iterations)


def new_credential(mechanism: str, password: str, iterations: int = MIN_ITERATIONS) -> ScramCredential:
    """Returns the credential of a password, with a new salt."""
    salt = new_salt()
    salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)
    return credential_of(mechanism, salted, salt, iterations)


def client_key(mechanism: str, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Client Key", HASHES[mechanism])


def server_key(mechanism: str, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Server Key", HASHES[mechanism])


def xor(left: bytes, right: bytes) -> bytes:
    """Combines two values of one length."""
    assert len(left) == len(right)
    return (int.from_bytes(left, "big") ^ int.from_bytes(right, "big")).to_bytes(len(left), "big")
