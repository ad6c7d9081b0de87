"""Stores the znode tree on disk: a log of transactions, and a snapshot that lets the log start again.

A folder holds two files. Each file is a sequence of records::

    0  length   uint32, big endian   bytes of payload, never 0
    4  crc      uint32, big endian   crc32c of the payload
    8  payload  JSON, UTF-8

``tree.log`` has one record per transaction, ``[1, zxid, session_id, time_ms, [change, ...]]``. 1 is the version of this
layout. A change is one of::

    ["create", path, data, is_ephemeral]         ["delete", path]    ["set", path, data]    ["check", path]
    ["create", path, data, is_ephemeral, acl]    ["acl", path, acl]
    ["open", timeout_ms]                         ["close"]

An access control list is ``[[permissions, scheme, id], ...]``. The open list is left out, as it was before there were
lists. A Headrace from that time rejects a folder with another list, so it does not serve protected znodes to everybody.

Data is a string if it is UTF-8 (Kafka's znodes are JSON), else ``{"base64": ...}``. Null is ``{"base64": "", "null":
true}``. An older Headrace, which did not support null, reads this as empty data. ``tree.snapshot`` starts with ``[1,
last_zxid, {session_id: timeout_ms}, znode_count]``. Then it has one record per znode, parents first: ``[path, data,
czxid, mzxid, pzxid, ctime_ms, mtime_ms, version, ephemeral_owner, created_count]``, followed by ``aversion, acl`` if
the znode's list is not open or was changed.

The tree holds the hashes of passwords and the secrets of delegation tokens. So a new folder has mode 0700, and the
files have mode 0600, also those of a folder from before.

What a crash leaves: A transaction is passed to the operating system before it is applied and answered. So the
transaction survives a crash of this process at any moment. A crash of the machine may lose it, because only snapshots
and ``close`` are synced to disk. A record that is cut off is at the end of the log, and loading removes it. A snapshot
is written beside the old one, synced, and renamed over the old one. Only then is the log emptied. A crash in between
leaves a log with transactions that the snapshot already contains. Loading skips these transactions by their zxid. A
snapshot that cannot be read is an error and is never skipped, because the log cannot replace it.
"""

import base64
import fcntl
import json
import os
import struct
from collections.abc import Iterator
from functools import lru_cache
from logging import getLogger
from pathlib import Path
from typing import Final, TypeAlias, cast

from headrace.coordination.acls import OPEN_ACL, Acl, AclEntry, shared
from headrace.coordination.interface import Check, CoordinationError, Create, Delete, SetData
from headrace.coordination.tree.znode import Znode
from headrace.coordination.tree.znode_tree import (
    AppliedTransaction,
    Change,
    CloseSession,
    OpenSession,
    SetAcl,
    Transaction,
    ZnodeTree,
)
from headrace.crc import crc32c

logger = getLogger(__name__)

LAYOUT_VERSION = 1
HEAD = struct.Struct(">II")
#: A snapshot replaces the log when the log has this size and is twice as large as the last snapshot.
SNAPSHOT_AT_BYTES = 4 * 1024 * 1024
_FILE_MODE = 0o600

Json: TypeAlias = "bool | int | str | list[Json] | dict[str, Json] | None"
_NULL: Final[dict[str, Json]] = {"base64": "", "null": True}


_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class CorruptTreeError(CoordinationError):
    """The files of the tree are corrupt, or have a layout that this version does not support."""


# Records


def encode_record(value: Json) -> bytes:
    payload = _to_json(value).encode()
    return HEAD.pack(len(payload), crc32c(payload)) + payload


def read_records(buffer: bytes) -> Iterator[tuple[int, Json]]:
    """The complete records, each with the position after it. Ends at the first incomplete record."""
    position = 0
    while position + HEAD.size <= len(buffer):
        length, crc = HEAD.unpack_from(buffer, position)
        end = position + HEAD.size + length
        payload = buffer[position + HEAD.size : end]
        if length == 0 or end > len(buffer) or crc32c(payload) != crc:
            return
        yield end, json.loads(payload)
        position = end


def encode_data(data: bytes | None) -> Json:
    if data is None:
        return dict(_NULL)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def decode_data(value: Json) -> bytes | None:
    if isinstance(value, dict):
        return None if value.get("null") else base64.b64decode(cast(str, value["base64"]))
    return cast(str, value).encode()


def encode_acl(acl: Acl) -> Json:
    return [list(entry) for entry in acl]


def decode_acl(value: Json) -> Acl:
    entries = cast(list[tuple[int, str, str]], value)
    return _one_per_content(tuple(AclEntry(*entry) for entry in entries))


@lru_cache(maxsize=1_024)
def _one_per_content(acl: Acl) -> Acl:
    """Lets all znodes with the same list share it in memory."""
    return shared(acl)


def encode_transaction(transaction: Transaction) -> bytes:
    changes: Json = [_encode_change(change) for change in transaction.changes]
    return encode_record([LAYOUT_VERSION, transaction.zxid, transaction.session_id, transaction.time_ms, changes])


def decode_transaction(value: Json) -> Transaction:
    version, zxid, session_id, time_ms, changes = cast(tuple[int, int, int, int, list[list[Json]]], value)
    _check_layout(version)
    return Transaction(zxid, session_id, time_ms, tuple(_decode_change(change) for change in changes))


def _check_layout(version: Json) -> None:
    if version != LAYOUT_VERSION:
        raise CorruptTreeError(f"the znode tree has layout version {version}; only {LAYOUT_VERSION} is supported")


def _encode_change(change: Change) -> Json:
    match change:
        case Create(path, data, ephemeral):
            created: list[Json] = ["create", path, encode_data(data), ephemeral]
            return created if change.acl is OPEN_ACL else [*created, encode_acl(change.acl)]
        case Delete(path):
            return ["delete", path]
        case SetData(path, data):
            return ["set", path, encode_data(data)]
        case SetAcl(path, acl):
            return ["acl", path, encode_acl(acl)]
        case Check(path):
            return ["check", path]
        case OpenSession(timeout_ms):
            return ["open", timeout_ms]
        case CloseSession():
            return ["close"]


def _decode_change(change: list[Json]) -> Change:
    match change:
        case ["create", str(path), data, bool(ephemeral)]:
            return Create(path, decode_data(data), ephemeral)
        case ["create", str(path), data, bool(ephemeral), list(acl)]:
            return Create(path, decode_data(data), ephemeral, acl=decode_acl(acl))
        case ["delete", str(path)]:
            return Delete(path)
        case ["set", str(path), data]:
            return SetData(path, decode_data(data))
        case ["acl", str(path), list(acl)]:
            return SetAcl(path, decode_acl(acl))
        case ["check", str(path)]:
            return Check(path)
        case ["open", int(timeout_ms)]:
            return OpenSession(timeout_ms)
        case ["close"]:
            return CloseSession()
        case _:
            raise CorruptTreeError(f"the log of the znode tree contains an unknown change: {change!r}")


# The snapshot


def encode_snapshot(tree: ZnodeTree) -> bytes:
    sessions: Json = {str(session_id): timeout_ms for session_id, timeout_ms in tree.sessions.items()}
    records = [encode_record([LAYOUT_VERSION, tree.last_zxid, sessions, len(tree.nodes)])]
    # The path of a parent is a prefix of the paths of its children, so the parent comes first in the sort order.
    records += [encode_record(_encode_znode(path, node)) for path, node in sorted(tree.nodes.items(), key=_path)]
    return b"".join(records)


def _path(item: tuple[str, Znode]) -> str:
    return item[0]


def _encode_znode(path: str, node: Znode) -> Json:
    times: list[Json] = [node.czxid, node.mzxid, node.pzxid, node.ctime_ms, node.mtime_ms]
    access: list[Json] = [] if node.acl is OPEN_ACL and node.aversion == 0 else [node.aversion, encode_acl(node.acl)]
    return [path, encode_data(node.data), *times, node.version, node.ephemeral_owner, node.created_count, *access]


def decode_snapshot(buffer: bytes, tree: ZnodeTree) -> None:
    values = [value for _, value in read_records(buffer)]
    if not values:
        raise CorruptTreeError("the snapshot of the znode tree does not start with a complete record")
    version, last_zxid, sessions, count = cast(tuple[int, int, dict[str, int], int], values[0])
    _check_layout(version)
    if len(values) - 1 != count:
        raise CorruptTreeError(f"the snapshot of the znode tree has only {len(values) - 1} complete znodes of {count}")
    tree.restore(
        last_zxid,
        {int(session_id): timeout_ms for session_id, timeout_ms in sessions.items()},
        [_decode_znode(cast(list[Json], value)) for value in values[1:]],
    )


def _decode_znode(value: list[Json]) -> tuple[str, Znode]:
    (path, data), numbers, access = value[:2], value[2:10], value[10:]
    czxid, mzxid, pzxid, ctime_ms, mtime_ms, version, owner, created_count = cast(list[int], numbers)
    # Most znodes have not changed since they were created: equal numbers share their memory.
    mzxid, pzxid = (czxid if zxid == czxid else zxid for zxid in (mzxid, pzxid))
    mtime_ms = ctime_ms if mtime_ms == ctime_ms else mtime_ms
    node = Znode(decode_data(data), czxid, mzxid, pzxid, ctime_ms, mtime_ms, version, owner, created_count)
    if access:
        aversion, acl = access
        node.aversion, node.acl = cast(int, aversion), decode_acl(acl)
    return cast(str, path), node


# The folder


def session_secret(folder: Path) -> bytes:
    """The secret for the passwords of sessions: random, created once per folder, in a file with mode 0600."""
    path = folder / "session.secret"
    try:
        return path.read_bytes()
    except FileNotFoundError:
        pass
    secret = os.urandom(32)
    new_path = path.with_suffix(".secret.new")
    write_private(new_path, secret)
    os.replace(new_path, path)
    return secret


def write_private(path: Path, content: bytes) -> None:
    """Writes a file that only its owner may read, and syncs it to disk. An earlier file is replaced."""
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _close_to_others(*paths: Path) -> None:
    """Takes the permissions of others away from files that an earlier version created."""
    for path in paths:
        try:
            if path.stat().st_mode & 0o077:
                path.chmod(_FILE_MODE)
        except FileNotFoundError:
            continue
        except PermissionError as error:
            logger.warning("others may read %s, which may hold secrets: %s", path, error)


class TreeStore:
    """A tree whose changes are written to disk. Only one process can open a folder."""

    def __init__(self, folder: Path, *, snapshot_at_bytes: int = SNAPSHOT_AT_BYTES) -> None:
        self.tree = ZnodeTree()
        self._snapshot_path = folder / "tree.snapshot"
        self._snapshot_at_bytes = snapshot_at_bytes
        self._plan_next_snapshot(0)
        self._has_incomplete_tail = False
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._fd = os.open(folder / "tree.log", os.O_RDWR | os.O_APPEND | os.O_CREAT, _FILE_MODE)
        try:
            _close_to_others(folder / "tree.log", self._snapshot_path)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._load_snapshot()
            self._log_size_bytes = self._load_log()
        except BaseException:
            os.close(self._fd)
            raise

    @classmethod
    def open(cls, folder: Path) -> "TreeStore":
        return cls(folder)

    def commit(self, transaction: Transaction) -> AppliedTransaction:
        """Writes a transaction, then applies it. If the write fails, the tree does not change."""
        self._append(encode_transaction(transaction))
        outcome = self.tree.apply(transaction)
        if self._log_size_bytes >= self._next_snapshot_at_bytes:
            self._try_snapshot()
        return outcome

    def snapshot(self) -> None:
        content = encode_snapshot(self.tree)
        new_path = self._snapshot_path.with_suffix(".snapshot.new")
        write_private(new_path, content)
        os.replace(new_path, self._snapshot_path)
        self._sync_folder()
        self._plan_next_snapshot(len(content))
        os.ftruncate(self._fd, 0)
        self._log_size_bytes = 0

    def _try_snapshot(self) -> None:
        try:
            self.snapshot()
        except OSError:
            # Nothing is lost, because the log has everything. Only the next load takes longer.
            logger.exception("cannot write a snapshot of the znode tree in %s; the log continues to grow", self._folder)
            self._next_snapshot_at_bytes = 2 * self._log_size_bytes

    def close(self) -> None:
        """Syncs the log to disk and unlocks the folder."""
        if self._fd < 0:
            return
        try:
            os.fsync(self._fd)
        finally:
            os.close(self._fd)
            self._fd = -1

    def _append(self, record: bytes) -> None:
        if self._has_incomplete_tail:
            # An incomplete record would hide all records after it from the next load.
            os.ftruncate(self._fd, self._log_size_bytes)
        self._has_incomplete_tail = True
        rest = memoryview(record)
        while rest:
            rest = rest[os.write(self._fd, rest) :]
        self._log_size_bytes += len(record)
        self._has_incomplete_tail = False

    def _load_snapshot(self) -> None:
        try:
            content = self._snapshot_path.read_bytes()
        except FileNotFoundError:
            return
        decode_snapshot(content, self.tree)
        self._plan_next_snapshot(len(content))

    def _plan_next_snapshot(self, snapshot_size_bytes: int) -> None:
        self._next_snapshot_at_bytes = max(self._snapshot_at_bytes, 2 * snapshot_size_bytes)

    def _load_log(self) -> int:
        """Applies the transactions that the snapshot does not contain, and cuts off an incomplete record.

        Returns the size of the log after that.
        """
        with open(self._fd, "rb", closefd=False) as file:
            content = file.read()
        whole_size_bytes = 0
        for end, value in read_records(content):
            transaction = decode_transaction(value)
            if transaction.zxid > self.tree.last_zxid:
                self._replay(transaction)
            whole_size_bytes = end
        if whole_size_bytes < len(content):
            logger.warning(
                "cut off %d bytes after the last complete record of tree.log in %s",
                len(content) - whole_size_bytes,
                self._folder,
            )
            os.ftruncate(self._fd, whole_size_bytes)
        return whole_size_bytes

    def _replay(self, transaction: Transaction) -> None:
        if transaction.zxid != self.tree.last_zxid + 1:
            raise CorruptTreeError(
                f"tree.log in {self._folder} has a gap: transaction {transaction.zxid} follows {self.tree.last_zxid}. "
                "Is tree.snapshot missing?"
            )
        self.tree.apply(transaction)

    def _sync_folder(self) -> None:
        fd = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
