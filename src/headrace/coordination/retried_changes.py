"""Changes whose outcome is found out when the connection breaks under them. For any ``interface.Coordination``.

A change whose answer was lost has happened or not. Here it is made again, and if that is refused, what is there now
says whether it was the first one that made it so: our session owns the ephemeral znode, the data is ours and one
version on. In this order and not the other way round: a read alone may come from a server of the ensemble that has not
yet heard of the change, while a refusal comes from all of them.

An outcome can only be told while nobody else does the very same. Where that may be, put something into the data that is
nobody else's, as Kafka does with its ids and epochs.
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
    """:raises NodeExistsError: if another session has it."""

    async def found() -> str | None:
        stat = await client.exists(path)
        return path if stat is not None and stat.ephemeral_owner == client.session_id else None

    await _until_known(lambda: client.create(path, data, ephemeral=True), NodeExistsError, found)


async def create_persistent(client: Coordination, path: str, data: bytes, *, make_parents: bool = False) -> None:
    """:raises NodeExistsError: if it was there, unless with the same data and the connection broke."""

    async def found() -> str | None:
        return path if (await client.get(path))[0] == data else None

    await _until_known(lambda: client.create(path, data, make_parents=make_parents), NodeExistsError, found)


async def create_at_least_once(client: Coordination, path: str, data: bytes = b"") -> str:
    """A sequential znode for who reads all of them: a second one that says the same does no harm."""
    while True:
        try:
            return await client.create(path, data, sequence=True)
        except ConnectionLostError:
            continue


async def set_data(client: Coordination, path: str, data: bytes, *, version: int = ANY_VERSION) -> Stat:
    """:raises BadVersionError: if somebody else has changed it. If they did so after us, it is raised too: what is
    there now is not ours."""

    async def found() -> Stat | None:
        now, stat = await client.get(path)
        return stat if stat.version == version + 1 and now == data else None

    return await _until_known(lambda: client.set(path, data, version=version), BadVersionError, found)


async def delete(client: Coordination, path: str, *, version: int = ANY_VERSION) -> None:
    """:raises NoNodeError: if it was not there at the first try; afterwards nobody can say who deleted it."""

    async def attempt() -> bool:
        await client.delete(path, version=version)
        return True

    async def found() -> bool | None:
        return True

    await _until_known(attempt, NoNodeError, found)


async def multi(
    client: Coordination, operations: Sequence[Operation], is_done: Callable[[], Awaitable[bool]]
) -> list[Result] | None:
    """None: they were done, but their results are lost.

    :param is_done: finds out, by reading, whether it was these operations that have happened.
    """

    async def found() -> tuple[None] | None:
        return (None,) if await is_done() else None

    async def attempt() -> tuple[list[Result] | None]:
        return (await client.multi(operations),)

    return (await _until_known(attempt, CoordinationError, found))[0]


async def _until_known(
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
