"""Reads delegation tokens from the znode tree, follows their changes, and changes them.

``security/tokens/token.py`` has paths and contents. All tokens are in memory. Every broker watches the notifications
of changes, and reads the tokens that they name, so a change is in force on all brokers as soon as ZooKeeper has told
them. A broker that starts a new session reads all tokens again.

A change reads the znode of its token, and writes it only if nobody has changed it since. The write and its notification
are one ``multi``. If an answer is lost, the change starts again.

A znode that has no token is ignored, with an error in the log: nobody can log in with it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from logging import getLogger
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from headrace.broker.tree.follower import TreeFollower
from headrace.broker.tree.reads import read_each
from headrace.coordination.interface import (
    BadVersionError,
    ConnectionLostError,
    CoordinationError,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    Operation,
    SetData,
)
from headrace.protocol.errors import DelegationTokenNotFound, UnknownServerError
from headrace.security.tokens.credentials import credential_of_token
from headrace.security.tokens.token import (
    CHANGE_NAME,
    CHANGES,
    PERSISTENT_PATHS,
    TOKENS,
    DelegationToken,
    MalformedTokenError,
    hmac_of,
    is_token_id,
    token_path,
)

if TYPE_CHECKING:
    from headrace.coordination.interface import Coordination
    from headrace.runtime.clock import Clock
    from headrace.security.sasl.scram import ScramCredential

T = TypeVar("T")

logger = getLogger(__name__)

#: How often a change starts again because other brokers were faster. One of them succeeds each time.
_MAX_ATTEMPTS = 100
#: From the stored token to the token to store; None to delete it.
Change = Callable[[DelegationToken], DelegationToken | None]


class IssuedToken(NamedTuple):
    """A token with its secret."""

    token: DelegationToken
    hmac: bytes

    def __repr__(self) -> str:
        return f"IssuedToken({self.token!r})"


class StoredTokens:
    def __init__(self, coordination: Coordination, clock: Clock, secret_key: str) -> None:
        self._coordination = coordination
        self._secret_key = secret_key
        self._by_id: dict[str, IssuedToken] = {}
        self._ids_by_hmac: dict[bytes, str] = {}
        #: By token id, then by mechanism.
        self._credentials: dict[str, dict[str, ScramCredential]] = {}
        self._follower = TreeFollower(coordination, clock, "delegation tokens", read_all=self._read_all)
        self._follower.watch(CHANGES, CHANGE_NAME, self._apply)

    # -- what is in memory

    def __iter__(self) -> Iterator[IssuedToken]:
        return iter(self._by_id.values())

    def get(self, token_id: str) -> IssuedToken | None:
        return self._by_id.get(token_id)

    def credential_of(self, issued: IssuedToken, mechanism: str) -> ScramCredential:
        """Returns the SCRAM credential of a token. The first call for a token takes some milliseconds."""
        credentials = self._credentials.setdefault(issued.token.token_id, {})
        if mechanism not in credentials:
            credentials[mechanism] = credential_of_token(mechanism, issued.hmac)
        return credentials[mechanism]

    # -- life cycle

    async def load(self) -> None:
        """Reads all tokens.

        :raises CoordinationError: if the tree does not answer.
        """
        for path in PERSISTENT_PATHS:
            with suppress(NodeExistsError):
                await self._coordination.create(path)
        await self._follower.load()

    def start(self) -> None:
        self._follower.start()

    async def stop(self) -> None:
        await self._follower.stop()

    # -- changing

    async def add(self, token: DelegationToken) -> IssuedToken:
        """Stores a new token. It is in force on this broker when the method returns.

        :raises KafkaError: if the token cannot be stored.
        """
        issued = IssuedToken(token, hmac_of(self._secret_key, token.token_id))
        create = Create(token_path(token.token_id), token.to_json())
        async with self._follower.lock:
            # The id is random, so if the znode exists, it was made before the connection was lost.
            with suppress(NodeExistsError):
                await self._repeat(lambda: self._write(create, token.token_id))
            self._put(issued)
        return issued

    async def find(self, token_hmac: bytes) -> str:
        """Returns the id of the token that has a secret.

        :raises DelegationTokenNotFound: if there is no such token, at any broker.
        """
        if token_hmac not in self._ids_by_hmac:
            await self.catch_up_or_fail()
        try:
            return self._ids_by_hmac[token_hmac]
        except KeyError:
            raise DelegationTokenNotFound("there is no such delegation token") from None

    async def change(self, token_id: str, change: Change) -> DelegationToken | None:
        """Changes or deletes a token. The change is in force on this broker when the method returns.

        :param change: may raise an exception; then nothing changes.
        :raises KafkaError: if there is no such token, or it cannot be stored.
        """
        async with self._follower.lock:
            return await self._repeat(lambda: self._try_change(token_id, change))

    async def _repeat(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeats a change whose answer was lost, or that lost a race against another broker."""
        for _ in range(_MAX_ATTEMPTS):
            with suppress(BadVersionError, ConnectionLostError):
                return await attempt()
        raise UnknownServerError("the delegation token cannot be stored now; try again")

    async def _try_change(self, token_id: str, change: Change) -> DelegationToken | None:
        found = await self._read(token_id)
        if found is None:
            self._forget(token_id)
            raise DelegationTokenNotFound("there is no such delegation token any more")
        issued, version = found
        wanted = change(issued.token)
        path = token_path(token_id)
        if wanted is None:
            await self._delete(path, version, token_id)
        else:
            await self._write(SetData(path, wanted.to_json(), version), token_id)
            self._put(issued._replace(token=wanted))
        return wanted

    async def _delete(self, path: str, version: int, token_id: str) -> None:
        try:
            await self._write(Delete(path, version), token_id)
        except ConnectionLostError:
            if await self._coordination.exists(path) is not None:
                raise
        self._forget(token_id)

    async def _write(self, operation: Operation, token_id: str) -> None:
        announce = Create(f"{CHANGES}/{CHANGE_NAME}", token_id.encode(), sequence=True)
        try:
            await self._coordination.multi([operation, announce])
        except (BadVersionError, ConnectionLostError, NodeExistsError):
            raise
        except CoordinationError as error:
            raise UnknownServerError(f"the delegation token cannot be stored now: {error!r}") from error

    # -- following changes

    async def catch_up_or_fail(self) -> None:
        """
        :raises UnknownServerError: if the tree does not answer.
        """
        try:
            await self._follower.catch_up()
        except CoordinationError as error:
            raise UnknownServerError(f"the delegation tokens cannot be read now: {error!r}") from error

    async def _apply(self, content: bytes) -> None:
        token_id = content.decode(errors="replace")
        if not is_token_id(token_id):
            logger.warning("a notification of changed delegation tokens names no token: %r", content[:100])
            return
        self._set(token_id, await self._read(token_id))

    async def _read_all(self) -> None:
        ids = await self._coordination.children(TOKENS)
        for gone in self._by_id.keys() - set(ids):
            self._forget(gone)
        async for token_id, found in read_each(self._read, ids):
            self._set(token_id, found)

    def _set(self, token_id: str, found: tuple[IssuedToken, int] | None) -> None:
        """Keeps what :meth:`_read` has found."""
        if found is None:
            self._forget(token_id)
        else:
            self._put(found[0])

    async def _read(self, token_id: str) -> tuple[IssuedToken, int] | None:
        """Returns a token and the version of its znode; None if there is no such token."""
        path = token_path(token_id)
        try:
            content, stat = await self._coordination.get(path)
            token = DelegationToken.from_json(content)
        except NoNodeError:
            return None
        except MalformedTokenError as error:
            logger.error("the delegation token in %s is ignored: %s", path, error)
            return None
        if token.token_id != token_id:
            logger.error("the delegation token in %s is ignored: it has the id of another token", path)
            return None
        return IssuedToken(token, hmac_of(self._secret_key, token_id)), stat.version

    def _put(self, issued: IssuedToken) -> None:
        self._by_id[issued.token.token_id] = issued
        self._ids_by_hmac[issued.hmac] = issued.token.token_id

    def _forget(self, token_id: str) -> None:
        self._credentials.pop(token_id, None)
        issued = self._by_id.pop(token_id, None)
        if issued is not None:
            del self._ids_by_hmac[issued.hmac]
