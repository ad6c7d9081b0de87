"""The server's side of a SCRAM login.

An unknown user and a wrong password cannot be told apart. For every login, the server makes up a credential from the
name (:class:`Decoys`), looks the user up, and goes on with the user's credential, or with the decoy if there is none.
Then it does the same work in both cases, and fails at the same step with the same answer. The decoy of a name is the
same on all brokers and at all times, because it is made with a secret of the cluster; a salt that changed would show
that the user does not exist.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from headrace.security.sasl.mechanism import AuthenticationFailed, ServerState
from headrace.security.sasl.scram import (
    DIGEST_BYTES,
    HASHES,
    MIN_ITERATIONS,
    ScramCredential,
    new_salt,
    xor,
)
from headrace.security.sasl.scram_messages import (
    ClientFirst,
    base64_text,
    read_client_final,
    read_client_first,
)

_BASE36 = b"0123456789abcdefghijklmnopqrstuvwxyz"
_TO_BASE36 = bytes(_BASE36[byte % 36] for byte in range(256))
_OTHER_USER = "Authentication failed: Client requested an authorization id that is different from username"


@dataclass(frozen=True, slots=True)
class ScramAccount:
    """A user, or a delegation token. A token's owner is the user."""

    credential: ScramCredential
    user: str
    expires_at_ms: int | None = None


class FindAccount(Protocol):
    """Finds the account of a mechanism by a user name, or by the id of a delegation token."""

    def __call__(self, mechanism: str, name: str, *, is_token: bool) -> ScramAccount | None: ...


class MakeDecoy(Protocol):
    """Returns the same salt for a name at every call. Nobody knows a password for the credential."""

    def __call__(self, mechanism: str, name: str, *, is_token: bool) -> ScramCredential: ...


class ScramServer(ServerState):
    def __init__(
        self,
        mechanism: str,
        find_account: FindAccount,
        decoy_for: MakeDecoy,
        *,
        nonce: Callable[[], str] = lambda: secrets.token_hex(16),
    ) -> None:
        super().__init__(mechanism)
        self._find_account = find_account
        self._decoy_for = decoy_for
        self._nonce = nonce
        self._progress: _Progress | None = None

    def step(self, token: bytes) -> bytes:
        if self._progress is None:
            return self._first(read_client_first(token))
        progress, self._progress = self._progress, None
        return self._last(progress, token)

    def _first(self, first: ClientFirst) -> bytes:
        decoy = self._decoy_for(self.name, first.username, is_token=first.is_token)
        account = self._find_account(self.name, first.username, is_token=first.is_token)
        if account is not None and account.credential.iterations < MIN_ITERATIONS:
            account = None
        credential = decoy if account is None else account.credential
        nonce = first.nonce + self._nonce()
        message = f"r={nonce},s={base64_text(credential.salt)},i={credential.iterations}"
        self._progress = _Progress(first, account, credential, nonce, message)
        return message.encode()

    def _last(self, progress: _Progress, token: bytes) -> bytes:
        final = read_client_final(token)
        first, credential = progress.first, progress.credential
        # The whole nonce counts, not its beginning or end (CVE-2024-56128).
        if not hmac.compare_digest(final.nonce.encode(), progress.nonce.encode()):
            raise AuthenticationFailed("the nonce of the last SCRAM message is not the server's nonce")
        if final.header != first.header.encode():
            raise AuthenticationFailed("the last SCRAM message does not repeat the header of the first")
        hash_name = HASHES[self.name]
        signed = f"{first.bare},{progress.message},{final.without_proof}".encode()
        signature = hmac.digest(credential.stored_key, signed, hash_name)
        if len(final.proof) != len(signature):
            raise AuthenticationFailed("the proof has a wrong length")
        key = hashlib.new(hash_name, xor(final.proof, signature)).digest()
        is_proven = hmac.compare_digest(key, credential.stored_key)
        if progress.account is None or not is_proven:
            raise AuthenticationFailed("unknown user or wrong password")
        if first.authorization_id not in ("", first.username):
            raise AuthenticationFailed("the authorization id is not the user name", for_peer=_OTHER_USER)
        self.expires_at_ms = progress.account.expires_at_ms
        self.is_token_authenticated = first.is_token
        self._complete(progress.account.user)
        return b"v=" + base64_text(hmac.digest(credential.server_key, signed, hash_name)).encode()


class _Progress(NamedTuple):
    """The state of the server between the two messages of the client."""

    first: ClientFirst
    account: ScramAccount | None
    credential: ScramCredential
    nonce: str
    message: str


class Decoys:
    """Makes up credentials for users that do not exist. They look like those of users that exist.

    The number of iterations and the form of the salt are those of a real user, chosen by the name, so that neither
    shows whether the user is real.
    """

    def __init__(self, secret: bytes, shapes_of: Callable[[str], Sequence[CredentialShape]]) -> None:
        """
        :param shapes_of: returns how the credentials of real users of a mechanism look, each shape once and sorted.
        """
        self._secret = secret
        self._shapes_of = shapes_of

    def __call__(self, mechanism: str, name: str, *, is_token: bool = False) -> ScramCredential:
        shapes = () if is_token else self._shapes_of(mechanism)  # all tokens look alike
        of_name = f"{mechanism},{'token' if is_token else 'user'},{name}".encode()
        seed = hashlib.blake2b(of_name, key=self._secret).digest()
        shape = shapes[int.from_bytes(seed[:8], "big") % len(shapes)] if shapes else _DEFAULT_SHAPE
        salt = hashlib.shake_256(seed[8:]).digest(shape.salt_length)
        if shape.is_base36:
            salt = salt.translate(_TO_BASE36)
        size = DIGEST_BYTES[mechanism]
        keys = secrets.token_bytes(2 * size)
        return ScramCredential(salt, keys[:size], keys[size:], shape.iterations)


class CredentialShape(NamedTuple):
    """The part of a credential that a client sees, and could compare with the credentials of other users."""

    iterations: int
    salt_length: int
    is_base36: bool


def shape_of(credential: ScramCredential) -> CredentialShape:
    return CredentialShape(credential.iterations, len(credential.salt), set(credential.salt) <= set(_BASE36))


_DEFAULT_SHAPE = CredentialShape(MIN_ITERATIONS, len(new_salt()), is_base36=True)
