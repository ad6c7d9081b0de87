"""Repeats changes whose answer was lost with the connection, and finds out whether the first attempt succeeded.

The functions work with any ``interface.Coordination``. After a connection loss, a change may have happened or not. The
change is made again. If the service rejects the second attempt, the current znodes show whether the first attempt
succeeded: our session owns the ephemeral znode, or the data is ours and the version is one higher. This order is
necessary: a read alone may come from a server of the ensemble that does not have the change yet, but a rejection comes
from the whole ensemble.

The result is reliable only if no other client makes the same change. Where other clients may do so, the data must
contain something unique, as Kafka does with its ids and epochs.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from headrace.coordination.interface import (
    ANY_VERSION,
    BadVersionError,
    ConnectionLostError,
    Coordination,
    CoordinationError,
    NodeExistsError,
    NoNodeError,
    Operation,
    Result,
    SessionExpiredError,
    Stat,
)

T = TypeVar("T")


async def create_ephemeral(client: Coordination, path: str, data: bytes = b"") -> None:
    """:raises NodeExistsError: if the znode belongs to another session."""

    async def found() -> str | None:
        stat = await client.exists(path)
        return path if stat is not None and stat.ephemeral_owner == client.session_id else None

    await _retry_until_known(lambda: client.create(path, data, ephemeral=True), NodeExistsError, found)


async def create_persistent(client: Coordination, path: str, data: bytes, *, make_parents: bool = False) -> None:
    """:raises NodeExistsError: if the znode existed before. After a connection loss, only if its data is different."""

    async def found() -> str | None:
        return path if (await client.get(path))[0] == data else None

    await _retry_until_known(lambda: client.create(path, data, make_parents=make_parents), NodeExistsError, found)


async def create_at_least_once(client: Coordination, path: str, data: bytes = b"") -> str:
    """Creates a sequential znode. After a connection loss there may be two, so readers must accept duplicates."""
    while True:
        try:
            return await client.create(path, data, sequence=True)
        except ConnectionLostError:
            continue


async def set_data(client: Coordination, path: str, data: bytes, *, version: int = ANY_VERSION) -> Stat:
    """
    :raises BadVersionError: if another client has changed the znode. After a connection loss, also if the other client
        changed the znode after us: the current data is not ours then.
    """

    async def found() -> Stat | None:
        now, stat = await client.get(path)
        return stat if stat.version == version + 1 and now == data else None

    return await _retry_until_known(lambda: client.set(path, data, version=version), BadVersionError, found)


async def delete(client: Coordination, path: str, *, version: int = ANY_VERSION) -> None:
    """:raises NoNodeError: if the znode did not exist at the first attempt. Later attempts count as successful."""

    async def attempt() -> bool:
        await client.delete(path, version=version)
        return True

    async def found() -> bool | None:
        return True

    await _retry_until_known(attempt, NoNodeError, found)


async def multi(
    client: Coordination, operations: Sequence[Operation], is_done: Callable[[], Awaitable[bool]]
) -> list[Result] | None:
    """Performs operations; None if they succeeded but their results were lost.

    :param is_done: reads whether these operations were performed.
    """

    async def found() -> tuple[None] | None:
        return (None,) if await is_done() else None

    async def attempt() -> tuple[list[Result] | None]:
        return (await client.multi(operations),)

    return (await _retry_until_known(attempt, CoordinationError, found))[0]


async def _retry_until_known(
    attempt: Callable[[], Awaitable[T]], refusal: type[CoordinationError], found: Callable[[], Awaitable[T | None]]
) -> T:
    is_unknown = False
    while True:
        try:
            return await attempt()
        except ConnectionLostError:
            is_unknown = True
        except SessionExpiredError:
            raise
        except refusal:
            result = await found() if is_unknown else None
            if result is None:
                raise
            return result
