"""A client of a ZooKeeper ensemble, or of a tree that Headrace serves: ``interface.Coordination`` over the network.

Calls do not wait for each other. They are sent in the order of the calls and answered in that order. Events come in
between, where the server sent them. So no caller sees a change before its event.

Without a connection, calls wait. A read that was in progress when the connection broke is repeated. A change in
progress raises :class:`ConnectionLostError`, because it may have happened or not; its caller finds out by reading. When
the session continues on a new connection, the client first reads which events its watches have missed. When the session
has expired, all waiting calls raise :class:`SessionExpiredError`, and later calls wait for the next session.

A chroot is put in front of every path. The client creates the chroot if it does not exist. With
``ClientSecurity.sets_acls`` every new znode, the chroot too, gets the access control list that Kafka gives to its path.

The transport is kazoo (``kazoo_transport.py``). It is imported only when it is needed, because a single broker does not
need it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from logging import getLogger
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.coordination.client.calls import Call
from headrace.coordination.client.chroot import Chroot, parse_connect
from headrace.coordination.client.client_security import ClientSecurity
from headrace.coordination.client.watch_registry import WatchKind, WatchRegistry
from headrace.coordination.interface import (
    ANY_VERSION,
    AuthFailedError,
    ConnectionLostError,
    CoordinationError,
    Create,
    Delete,
    NoAuthError,
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
from headrace.coordination.kafka_acls import kafka_acl
from headrace.coordination.request_times import RequestTimes
from headrace.coordination.tree.znode import ROOT, parent_of

if TYPE_CHECKING:
    from headrace.coordination.client.kazoo_requests import Request

logger = getLogger(__name__)

T = TypeVar("T")
DEFAULT_SESSION_TIMEOUT_MS = DEFAULT_CONNECTION_TIMEOUT_MS = 18_000
_CREATE_ATTEMPTS = 10


class ZookeeperCoordination:
    """Implements ``interface.Coordination``. Belongs to the event loop that runs when the client is created."""

    def __init__(
        self,
        connect: str,
        *,
        session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS,
        security: ClientSecurity | None = None,
    ) -> None:
        """:param connect: ``host:port,host:port/chroot``. The client connects in :meth:`start`."""
        security = security or ClientSecurity()
        hosts, chroot = parse_connect(connect)
        self._chroot = Chroot(chroot)
        from headrace.coordination.client import kazoo_requests, kazoo_transport

        self.session_id = 0
        self._hosts = hosts
        self._loop = asyncio.get_running_loop()
        self._requests = kazoo_requests
        self._transport = kazoo_transport.KazooTransport(
            hosts,
            session_timeout_ms,
            self._loop,
            on_state=self._on_state,
            on_event=self._on_event,
            on_login_failed=self._on_login_failed,
            security=security,
        )
        self._sets_acls = security.sets_acls
        self._has_login = security.login is not None
        self._state = SessionState.SUSPENDED
        self._was_connected = asyncio.Event()
        self._is_closed = False
        self.request_times = RequestTimes()
        self._watches = WatchRegistry()
        self._listeners: list[SessionListener] = []
        #: Calls that are sent and not answered.
        self._in_progress: set[Call[Any]] = set()
        #: Calls to send on the next connection.
        self._waiting: list[Call[Any]] = []

    @classmethod
    async def connect(
        cls,
        connect: str,
        *,
        session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS,
        connection_timeout_ms: int = DEFAULT_CONNECTION_TIMEOUT_MS,
        security: ClientSecurity | None = None,
    ) -> ZookeeperCoordination:
        """Creates a client and opens its session.

        :raises ConnectionLostError: if no server answers in time.
        :raises AuthFailedError: if the server rejects our login.
        """
        client = cls(connect, session_timeout_ms=session_timeout_ms, security=security)
        try:
            await client.start(connection_timeout_ms)
        except BaseException:
            await client.close()
            raise
        return client

    async def start(self, connection_timeout_ms: int = DEFAULT_CONNECTION_TIMEOUT_MS) -> None:
        self._transport.start()
        try:
            async with asyncio.timeout(connection_timeout_ms / 1000):
                await self._was_connected.wait()
                if self._has_login:
                    await self._check_login()
                await self._create_chroot()
        except TimeoutError:
            error = self._transport.last_error
            reason = "" if error is None else f"; the last attempt failed: {error.strerror or error}"
            raise ConnectionLostError(
                f"no ZooKeeper at {self._hosts} answered within {connection_timeout_ms} ms{reason}"
            ) from None

    async def _check_login(self) -> None:
        """Makes a request: kazoo reports the connection before it logs in, so a failed login shows at a request."""
        try:
            await self._read(self._requests.exists(ROOT, watch=False))
        except NoAuthError:
            logger.debug("our login may not read the root of ZooKeeper")

    async def _create_chroot(self) -> None:
        paths: list[str] = []
        path = self._chroot.path
        while path and path != ROOT:
            paths.append(path)
            path = parent_of(path)
        for path in reversed(paths):
            if await self._read(self._requests.exists(path, watch=False)) is None:
                try:
                    # Below the chroot, the root is a path that everybody may read.
                    await self._change(self._requests.create(self._protected(Create(path), ROOT)))
                except NodeExistsError:
                    logger.debug("another client created %s in the meantime", path)

    # The session

    def add_session_listener(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    def remove_session_listener(self, listener: SessionListener) -> None:
        self._listeners.remove(listener)

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        await asyncio.to_thread(self._transport.stop)
        self._fail_all(SessionExpiredError("the client is closed"))

    def _on_state(self, state: SessionState, session_id: int) -> None:
        if state is SessionState.LOST:
            if self._is_closed:
                return
            logger.warning("the ZooKeeper session %#x has expired", self.session_id)
            self._watches.clear()
            self._fail_all(SessionExpiredError(f"session {self.session_id:#x} has expired"))
        elif state is SessionState.CONNECTED:
            if session_id == self.session_id:
                self._watch_again()
            self.session_id = session_id
        self._state = state
        if state is SessionState.CONNECTED:
            self._send_waiting()
            self._was_connected.set()
        for listener in list(self._listeners):
            _notify(listener, state)

    def _on_login_failed(self) -> None:
        reason = f"ZooKeeper at {self._hosts} rejects our login (headrace.zookeeper.login)"
        logger.error("%s; trying again", reason)
        self._fail_all(AuthFailedError(reason))

    def _fail_all(self, error: CoordinationError) -> None:
        calls = [*self._in_progress, *self._waiting]
        self._in_progress, self._waiting = set(), []
        for call in calls:
            call.fail(type(error)(*error.args))

    # Watches

    def _on_event(self, event: WatchEvent) -> None:
        event = WatchEvent(event.type, self._chroot.remove_from(event.path))
        for watcher in self._watches.take(event):
            _notify(watcher, event)

    def _watch_again(self) -> None:
        """Delivers missed events on a new connection, and sets the other watches again."""
        for kind, path in self._watches.paths():
            self._watch_path_again(kind, path)

    def _watch_path_again(self, kind: WatchKind, path: str) -> None:
        def compare(answer: object) -> None:
            if isinstance(answer, NoNodeError):
                self._deliver_missed(kind, path, None)
            elif isinstance(answer, CoordinationError):
                logger.debug("%s is watched again on the next connection: %s", path, answer)
            elif isinstance(answer, Stat) or answer is None:
                self._deliver_missed(kind, path, answer)
            elif isinstance(answer, tuple):
                self._deliver_missed(kind, path, answer[1])

        full_path = self._chroot.add_to(path)
        if kind is WatchKind.DATA:
            self._transport.send(self._requests.exists(full_path, watch=True), compare)
        else:
            self._transport.send(self._requests.children(full_path, watch=True), compare)

    def _deliver_missed(self, kind: WatchKind, path: str, stat: Stat | None) -> None:
        event = self._watches.missed(kind, path, stat)
        if event is not None:
            for watcher in self._watches.take(event):
                _notify(watcher, event)

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
        rooted = self._protected(self._chroot.create(operation), operation.path)
        return self._chroot.remove_from(await self._change(self._requests.create(rooted)))

    def _protected(self, rooted: T, path: str) -> T:
        """Gives a Create the list of its path below the chroot, if this client protects its znodes."""
        if self._sets_acls and isinstance(rooted, Create):
            return rooted._replace(acl=kafka_acl(path))
        return rooted

    async def _create_with_parents(self, operation: Create) -> str:
        """Creates everything in one transaction. Repeats it if another client creates or deletes a parent meanwhile."""
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
        raise NoNodeError(
            f"another client changed the parents of {operation.path} at each of {_CREATE_ATTEMPTS} attempts"
        )

    async def _missing_parents(self, path: str) -> list[Create]:
        parents: list[str] = []
        while (path := parent_of(path)) != ROOT:
            parents.append(path)
        found = await asyncio.gather(*map(self.exists, reversed(parents)))
        return [Create(parent) for parent, stat in zip(reversed(parents), found, strict=True) if stat is None]

    async def get(self, path: str, *, watch: Watcher | None = None) -> tuple[bytes, Stat]:
        request = self._requests.get(self._chroot.checked(path), watch=watch is not None)
        return await self._read(request, self._watching(WatchKind.DATA, path, watch, lambda answer: answer[1]))

    async def set(self, path: str, data: bytes, *, version: int = ANY_VERSION) -> Stat:
        return await self._change(self._requests.set_data(SetData(self._chroot.checked(path), data, version)))

    async def delete(self, path: str, *, version: int = ANY_VERSION) -> None:
        await self._change(self._requests.delete(self._chroot.delete(Delete(path, version))))

    async def exists(self, path: str, *, watch: Watcher | None = None) -> Stat | None:
        request = self._requests.exists(self._chroot.checked(path), watch=watch is not None)
        return await self._read(request, self._watching(WatchKind.DATA, path, watch, lambda answer: answer))

    async def children(self, path: str, *, watch: Watcher | None = None) -> list[str]:
        request = self._requests.children(self._chroot.checked(path), watch=watch is not None)
        names, _ = await self._read(request, self._watching(WatchKind.CHILDREN, path, watch, lambda answer: answer[1]))
        return names

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        rooted: list[Operation] = []
        try:
            for operation in operations:
                rooted.append(self._protected(self._chroot.operation(operation), operation.path))  # noqa: PERF401  the length is the index of the operation that fails
        except CoordinationError as error:
            error.operation_index = len(rooted)
            raise
        results = await self._change(self._requests.multi(rooted))
        return [self._chroot.remove_from(result) if isinstance(result, str) else result for result in results]

    # The way of a call

    async def _read(self, request: Request[T], on_answer: Callable[[T], None] | None = None) -> T:
        return await self._call(Call(request, self._loop.create_future(), on_answer, is_read=True))

    async def _change(self, request: Request[T]) -> T:
        return await self._call(Call(request, self._loop.create_future(), None, is_read=False))

    async def _call(self, call: Call[T]) -> T:
        if self._is_closed:
            raise SessionExpiredError("the client is closed")
        if self._state is SessionState.CONNECTED:
            self._send(call)
        else:
            self._waiting.append(call)
        return await call.answer

    def _send(self, call: Call[T]) -> None:
        self._in_progress.add(call)
        call.sent_ns = perf_counter_ns()
        self._transport.send(call.request, lambda answer: self._answered(call, answer))

    def _send_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            if not call.answer.done():
                self._send(call)

    def _answered(self, call: Call[T], answer: T | CoordinationError) -> None:
        if call not in self._in_progress:
            return  # its session has expired before
        self._in_progress.remove(call)
        self.request_times.add(perf_counter_ns() - call.sent_ns)
        if isinstance(answer, ConnectionLostError) and call.is_read and not self._is_closed:
            self._waiting.append(call)
        elif isinstance(answer, CoordinationError):
            call.fail(answer)
        else:
            call.succeed(answer)

    def _watching(
        self, kind: WatchKind, path: str, watch: Watcher | None, stat_of: Callable[[T], Stat | None]
    ) -> Callable[[T], None] | None:
        if watch is None:
            return None
        return lambda answer: self._watches.add(kind, path, watch, stat_of(answer))


def _notify(listener: Callable[[T], None], event: T) -> None:
    try:
        listener(event)
    except Exception:
        logger.exception("the listener %r failed for %s", listener, event)
