"""A client of a ZooKeeper ensemble, or of a tree that we serve: ``interface.Coordination`` over the network.

Calls do not wait for each other: they leave in the order in which they were made and are answered in that order, with
events in between where the server put them, so that nobody sees a change before its event.

While there is no connection calls wait. One that was under way when it broke is asked again if it only reads; a change
raises :class:`ConnectionLostError`, as it may have happened or not: its caller reads, and knows. When the session goes
on on a new connection, the first thing asked is what the watches have missed. When it turns out to be over, everything
that was waiting raises :class:`SessionExpiredError`, and calls made from then on wait for the next session.

A chroot is put in front of every path, and made if it is not there.

The transport is kazoo (``kazoo_link.py``). It is imported when first needed: a broker alone does not need it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from logging import getLogger
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headrace.coordination.client.chroot import Chroot, parse_connect
from headrace.coordination.client.watch_registry import Kind, WatchRegistry
from headrace.coordination.interface import (
    ANY_VERSION,
    ConnectionLostError,
    CoordinationError,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    Operation,
    Result,
    SessionExpiredError,
    SessionListener,
    SessionState,
    SetData,
    Stat,
    Watcher,
    WatchEvent,
)
from headrace.coordination.tree.znode_tree import ROOT, parent_of

if TYPE_CHECKING:
    from headrace.coordination.client.kazoo_transport import Request

logger = getLogger(__name__)

T = TypeVar("T")
DEFAULT_SESSION_TIMEOUT_MS = DEFAULT_CONNECTION_TIMEOUT_MS = 18_000
_CREATE_ATTEMPTS = 10
#: How many requests' times are kept, for quantiles.
_SAMPLE = 256


class RequestTimes:
    """How many requests were answered, and how long the last ones took."""

    __slots__ = ("count", "recent_ns")

    def __init__(self) -> None:
        self.count = 0
        self.recent_ns: deque[int] = deque(maxlen=_SAMPLE)

    def add(self, took_ns: int) -> None:
        self.count += 1
        self.recent_ns.append(took_ns)


class ZookeeperCoordination:
    """Implements ``interface.Coordination``. Belongs to the loop that runs when it is made."""

    def __init__(self, connect: str, *, session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS) -> None:
        """:param connect: ``host:port,host:port/chroot``. Nothing is connected before :meth:`start`."""
        hosts, chroot = parse_connect(connect)
        self._chroot = Chroot(chroot)
        from headrace.coordination.client import kazoo_transport

        self.session_id = 0
        self._hosts = hosts
        self._loop = asyncio.get_running_loop()
        self._requests = kazoo_transport
        self._link = kazoo_transport.KazooTransport(
            hosts, session_timeout_ms, self._loop, on_state=self._on_state, on_event=self._on_event
        )
        self._state = SessionState.SUSPENDED
        self._was_connected = asyncio.Event()
        self._is_closed = False
        self.request_times = RequestTimes()
        self._book = WatchRegistry()
        self._listeners: list[SessionListener] = []
        #: Sent and not answered.
        self._under_way: set[_Call[Any]] = set()
        #: To be sent when there is a connection.
        self._waiting: list[_Call[Any]] = []

    @classmethod
    async def connect(
        cls,
        connect: str,
        *,
        session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS,
        connection_timeout_ms: int = DEFAULT_CONNECTION_TIMEOUT_MS,
    ) -> ZookeeperCoordination:
        """A client with a session.

        :raises ConnectionLostError: if no server answers in time.
        """
        client = cls(connect, session_timeout_ms=session_timeout_ms)
        try:
            await client.start(connection_timeout_ms)
        except BaseException:
            await client.close()
            raise
        return client

    async def start(self, connection_timeout_ms: int = DEFAULT_CONNECTION_TIMEOUT_MS) -> None:
        self._link.start()
        try:
            async with asyncio.timeout(connection_timeout_ms / 1000):
                await self._was_connected.wait()
                await self._make_chroot()
        except TimeoutError:
            raise ConnectionLostError(
                f"no ZooKeeper at {self._hosts} has answered within {connection_timeout_ms} ms"
            ) from None

    async def _make_chroot(self) -> None:
        paths: list[str] = []
        path = self._chroot.path
        while path and path != ROOT:
            paths.append(path)
            path = parent_of(path)
        for path in reversed(paths):
            if await self._ask(self._requests.exists(path, watch=False)) is None:
                try:
                    await self._change(self._requests.create(Create(path)))
                except NodeExistsError:
                    logger.debug("%s was made by somebody else meanwhile", path)

    # The session

    def add_session_listener(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    def remove_session_listener(self, listener: SessionListener) -> None:
        self._listeners.remove(listener)

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        await asyncio.to_thread(self._link.stop)
        self._fail_all("the client is closed")

    def _on_state(self, state: SessionState, session_id: int) -> None:
        if state is SessionState.LOST:
            if self._is_closed:
                return
            logger.warning("session %#x with ZooKeeper is lost", self.session_id)
            self._book.clear()
            self._fail_all(f"session {self.session_id:#x} is over")
        elif state is SessionState.CONNECTED:
            if session_id == self.session_id:
                self._watch_again()
            self.session_id = session_id
        self._state = state
        if state is SessionState.CONNECTED:
            self._send_waiting()
            self._was_connected.set()
        for listener in list(self._listeners):
            _tell(listener, state)

    def _fail_all(self, reason: str) -> None:
        calls = [*self._under_way, *self._waiting]
        self._under_way, self._waiting = set(), []
        for call in calls:
            call.fail(SessionExpiredError(reason))

    # Watches

    def _on_event(self, event: WatchEvent) -> None:
        event = WatchEvent(event.type, self._chroot.taken_from(event.path))
        for watcher in self._book.take(event):
            _tell(watcher, event)

    def _watch_again(self) -> None:
        """The connection is another: what has been missed is told, and the rest watched anew."""
        for kind, path in self._book.paths():
            self._watch_path_again(kind, path)

    def _watch_path_again(self, kind: Kind, path: str) -> None:
        def look(answer: object) -> None:
            if isinstance(answer, NoNodeError):
                self._tell_missed(kind, path, None)
            elif isinstance(answer, CoordinationError):
                logger.debug("watching %s again is left to the next connection: %s", path, answer)
            elif isinstance(answer, Stat) or answer is None:
                self._tell_missed(kind, path, answer)
            elif isinstance(answer, tuple):
                self._tell_missed(kind, path, answer[1])

        full_path = self._chroot.put_before(path)
        if kind is Kind.DATA:
            self._link.send(self._requests.exists(full_path, watch=True), look)
        else:
            self._link.send(self._requests.children(full_path, watch=True), look)

    def _tell_missed(self, kind: Kind, path: str, stat: Stat | None) -> None:
        event = self._book.missed(kind, path, stat)
        if event is not None:
            for watcher in self._book.take(event):
                _tell(watcher, event)

    # Calls

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        make_parents: bool = False,
    ) -> str:
        operation = Create(path, data, ephemeral, sequence)
        try:
            return await self._create(operation)
        except NoNodeError:
            if not make_parents:
                raise
        return await self._create_with_parents(operation)

    async def _create(self, operation: Create) -> str:
        return self._chroot.taken_from(await self._change(self._requests.create(self._chroot.create(operation))))

    async def _create_with_parents(self, operation: Create) -> str:
        """In one transaction, and again if somebody else makes or deletes one of the parents meanwhile."""
        for _ in range(_CREATE_ATTEMPTS):
            missing = await self._missing_parents(operation.path)
            try:
                created = (await self.multi([*missing, operation]))[-1]
            except (NodeExistsError, NoNodeError) as error:
                if isinstance(error, NodeExistsError) and error.operation_index == len(missing):
                    raise
                continue
            assert isinstance(created, str)
            return created
        raise NoNodeError(f"the parents of {operation.path} come and go")

    async def _missing_parents(self, path: str) -> list[Create]:
        parents: list[str] = []
        while (path := parent_of(path)) != ROOT:
            parents.append(path)
        found = await asyncio.gather(*map(self.exists, reversed(parents)))
        return [Create(parent) for parent, stat in zip(reversed(parents), found, strict=True) if stat is None]

    async def get(self, path: str, *, watch: Watcher | None = None) -> tuple[bytes, Stat]:
        request = self._requests.get(self._chroot.checked(path), watch=watch is not None)
        return await self._ask(request, self._watching(Kind.DATA, path, watch, lambda answer: answer[1]))

    async def set(self, path: str, data: bytes, *, version: int = ANY_VERSION) -> Stat:
        return await self._change(self._requests.set_data(SetData(self._chroot.checked(path), data, version)))

    async def delete(self, path: str, *, version: int = ANY_VERSION) -> None:
        await self._change(self._requests.delete(self._chroot.delete(Delete(path, version))))

    async def exists(self, path: str, *, watch: Watcher | None = None) -> Stat | None:
        request = self._requests.exists(self._chroot.checked(path), watch=watch is not None)
        return await self._ask(request, self._watching(Kind.DATA, path, watch, lambda answer: answer))

    async def children(self, path: str, *, watch: Watcher | None = None) -> list[str]:
        request = self._requests.children(self._chroot.checked(path), watch=watch is not None)
        names, _ = await self._ask(request, self._watching(Kind.CHILDREN, path, watch, lambda answer: answer[1]))
        return names

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        rooted: list[Operation] = []
        try:
            for operation in operations:
                rooted.append(self._chroot.operation(operation))  # noqa: PERF401  how many there are says which one failed
        except CoordinationError as error:
            error.operation_index = len(rooted)
            raise
        results = await self._change(self._requests.multi(rooted))
        return [self._chroot.taken_from(result) if isinstance(result, str) else result for result in results]

    # How a call goes

    async def _ask(self, request: Request[T], on_answer: Callable[[T], None] | None = None) -> T:
        return await self._call(_Call(request, self._loop.create_future(), on_answer, is_read=True))

    async def _change(self, request: Request[T]) -> T:
        return await self._call(_Call(request, self._loop.create_future(), None, is_read=False))

    async def _call(self, call: _Call[T]) -> T:
        if self._is_closed:
            raise SessionExpiredError("the client is closed")
        if self._state is SessionState.CONNECTED:
            self._send(call)
        else:
            self._waiting.append(call)
        return await call.answer

    def _send(self, call: _Call[T]) -> None:
        self._under_way.add(call)
        call.sent_ns = perf_counter_ns()
        self._link.send(call.request, lambda answer: self._answered(call, answer))

    def _send_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            if not call.answer.done():
                self._send(call)

    def _answered(self, call: _Call[T], answer: T | CoordinationError) -> None:
        if call not in self._under_way:
            return  # its session was over before
        self._under_way.remove(call)
        self.request_times.add(perf_counter_ns() - call.sent_ns)
        if isinstance(answer, ConnectionLostError) and call.is_read and not self._is_closed:
            self._waiting.append(call)
        elif isinstance(answer, CoordinationError):
            call.fail(answer)
        else:
            call.succeed(answer)

    def _watching(
        self, kind: Kind, path: str, watch: Watcher | None, stat_of: Callable[[T], Stat | None]
    ) -> Callable[[T], None] | None:
        if watch is None:
            return None
        return lambda answer: self._book.add(kind, path, watch, stat_of(answer))


class _Call(Generic[T]):
    __slots__ = ("answer", "is_read", "on_answer", "request", "sent_ns")

    def __init__(
        self, request: Request[T], answer: asyncio.Future[T], on_answer: Callable[[T], None] | None, *, is_read: bool
    ) -> None:
        self.request = request
        self.answer = answer
        #: Called with the answer before anything that came after it is looked at.
        self.on_answer = on_answer
        self.is_read = is_read
        self.sent_ns = 0

    def succeed(self, answer: T) -> None:
        if self.answer.done():
            return  # nobody waits any more
        if self.on_answer is not None:
            self.on_answer(answer)
        self.answer.set_result(answer)

    def fail(self, error: CoordinationError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


def _tell(listener: Callable[[T], None], news: T) -> None:
    try:
        listener(news)
    except Exception:
        logger.exception("who was to hear of %s failed: %r", news, listener)
