"""A client of a znode tree that lives in this process.

:class:`LocalCoordination` is one session with a :class:`TreeHost`. Its calls are coroutines, because the calls of a
real ZooKeeper client are coroutines. Here no call ever waits.
"""

from collections.abc import Sequence

from headrace.coordination.interface import (
    ANY_VERSION,
    Create,
    Delete,
    Operation,
    Result,
    SessionListener,
    SetData,
    Stat,
    Watcher,
)
from headrace.coordination.tree.host import DEFAULT_SESSION_TIMEOUT_MS, CallSoon, TreeHost, call_directly
from headrace.coordination.tree.znode import ROOT, check_path, parent_of
from headrace.coordination.tree.znode_tree import ZnodeTree


class LocalCoordination:
    """Implements ``interface.Coordination`` for a tree in this process."""

    request_times = None

    def __init__(
        self,
        host: TreeHost,
        *,
        session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS,
        call_soon: CallSoon = call_directly,
    ) -> None:
        self._host = host
        self.session_id = host.open_session(session_timeout_ms, call_soon=call_soon)

    def add_session_listener(self, listener: SessionListener) -> None:
        """Does nothing: the state of a session in this process never changes before :meth:`close`."""

    def remove_session_listener(self, listener: SessionListener) -> None:
        """Does nothing, as :meth:`add_session_listener`."""

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        make_parents: bool = False,
    ) -> str:
        operations = self._missing_parents(path) if make_parents else []
        operations.append(Create(path, data, ephemeral, sequence))
        created = self._host.submit(self.session_id, operations)[-1]
        assert isinstance(created, str)
        return created

    async def get(self, path: str, *, watch: Watcher | None = None) -> tuple[bytes, Stat]:
        found = self._tree().get(path)
        if watch is not None:
            self._host.tree.watches.add_data(self.session_id, path, watch)
        return found

    async def set(self, path: str, data: bytes, *, version: int = ANY_VERSION) -> Stat:
        (stat,) = self._host.submit(self.session_id, [SetData(path, data, version)])
        assert isinstance(stat, Stat)
        return stat

    async def delete(self, path: str, *, version: int = ANY_VERSION) -> None:
        self._host.submit(self.session_id, [Delete(path, version)])

    async def exists(self, path: str, *, watch: Watcher | None = None) -> Stat | None:
        stat = self._tree().exists(path)
        if watch is not None:
            self._host.tree.watches.add_data(self.session_id, path, watch)
        return stat

    async def children(self, path: str, *, watch: Watcher | None = None) -> list[str]:
        names = self._tree().children(path)
        if watch is not None:
            self._host.tree.watches.add_children(self.session_id, path, watch)
        return names

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        return self._host.submit(self.session_id, operations)

    async def close(self) -> None:
        if self.session_id in self._host.tree.sessions:
            self._host.close_session(self.session_id)

    def _tree(self) -> ZnodeTree:
        tree = self._host.tree
        tree.check_session(self.session_id)
        return tree

    def _missing_parents(self, path: str) -> list[Operation]:
        """The operations that create the missing parents of ``path``, in the same transaction."""
        check_path(path.rstrip("/") or ROOT)
        missing: list[Operation] = []
        parent = parent_of(path)
        while self._host.tree.exists(parent) is None:
            missing.append(Create(parent))
            parent = parent_of(parent)
        return missing[::-1]
