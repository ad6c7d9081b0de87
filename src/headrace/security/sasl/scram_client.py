"""The client's side of a SCRAM login.

The server names the number of iterations. A number above MAX_CLIENT_ITERATIONS is refused, because a hostile server
could keep the client busy for hours; a number below MIN_ITERATIONS would make the password easy to find. The login is
complete only when the server has proven that it knows the user's key.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable

from headrace.security.sasl.mechanism import AuthenticationFailed
from headrace.security.sasl.scram import (
    HASHES,
    MAX_CLIENT_ITERATIONS,
    MIN_ITERATIONS,
    client_key,
    salted_password,
    server_key,
    xor,
)
from headrace.security.sasl.scram_messages import (
    TOKEN_AUTHENTICATION,
    base64_text,
    client_first,
    read_server_final,
    read_server_first,
)


class ScramClient:
    """``is_token``: the name is the id of a delegation token, the password is its HMAC in base64."""

    def __init__(
        self,
        mechanism: str,
        username: str,
        password: str,
        *,
        is_token: bool = False,
        nonce: Callable[[], str] = lambda: secrets.token_hex(16),
    ) -> None:
        self.name = mechanism
        self.is_complete = False
        self._password = password
        extensions = {TOKEN_AUTHENTICATION: "true"} if is_token else {}
        self._first = client_first(username, nonce(), extensions)
        self._signature: bytes | None = None

    def first(self) -> bytes:
        return f"{self._first.header}{self._first.bare}".encode()

    def step(self, challenge: bytes) -> bytes | None:
        if self._signature is None:
            return self._prove(challenge)
        if not hmac.compare_digest(read_server_final(challenge), self._signature):
            raise AuthenticationFailed("the server did not prove that it knows the user's key")
        self.is_complete = True
        return None

    def _prove(self, challenge: bytes) -> bytes:
        server_first = read_server_first(challenge)
        if not server_first.nonce.startswith(self._first.nonce) or server_first.nonce == self._first.nonce:
            raise AuthenticationFailed("the server's nonce does not continue the client's nonce")
        if not MIN_ITERATIONS <= server_first.iterations <= MAX_CLIENT_ITERATIONS:
            raise AuthenticationFailed(
                f"the server asks for {server_first.iterations} iterations; "
                f"this client accepts {MIN_ITERATIONS} to {MAX_CLIENT_ITERATIONS}"
            )
        hash_name = HASHES[self.name]
        salted = salted_password(self.name, self._password.encode(), server_first.salt, server_first.iterations)
        key = client_key(self.name, salted)
        without_proof = f"c={base64_text(self._first.header.encode())},r={server_first.nonce}"
        signed = f"{self._first.bare},{bytes(challenge).decode()},{without_proof}".encode()
        stored_key = hashlib.new(hash_name, key).digest()
        proof = xor(key, hmac.digest(stored_key, signed, hash_name))
        self._signature = hmac.digest(server_key(self.name, salted), signed, hash_name)
        return f"{without_proof},p={base64_text(proof)}".encode()
