"""Checks the operations of one transaction, each against the tree as the operations before it leave it.

Permissions are checked where ZooKeeper checks them, in this order: an access control list is valid, the znode exists,
the permission (CREATE and DELETE at the parent), the path is valid, the version, the rest. A delete without permission
does not say whether the znode exists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.coordination.acls import OPEN_ACL, Acl, Permission
from headrace.coordination.interface import (
    ANY_VERSION,
    BadArgumentsError,
    BadVersionError,
    Check,
    Create,
    Delete,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SetData,
    copy_data,
)
from headrace.coordination.tree.znode import ROOT, Znode, check_path, parent_of

if TYPE_CHECKING:
    from headrace.coordination.tree.caller import Caller
    from headrace.coordination.tree.znode_tree import SetAcl


class _PendingZnode:
    """The fields of a znode that later operations of the same transaction are checked against."""

    __slots__ = ("acl", "child_count", "created_count", "is_ephemeral", "version")

    def __init__(self, version: int, created_count: int, child_count: int, is_ephemeral: bool, acl: Acl) -> None:
        self.version = version
        self.created_count = created_count
        self.child_count = child_count
        self.is_ephemeral = is_ephemeral
        self.acl = acl

    @classmethod
    def of(cls, node: Znode) -> _PendingZnode:
        return cls(node.version, node.created_count, len(node.children), node.ephemeral_owner != 0, node.acl)


class PendingTree:
    """The tree after the operations of one transaction that were resolved so far."""

    def __init__(self, nodes: dict[str, Znode], caller: Caller | None) -> None:
        """:param caller: whose permissions are checked; None for code of this process, which may do everything."""
        self._nodes = nodes
        self._caller = caller
        self._znodes: dict[str, _PendingZnode | None] = {}

    def resolve(self, operation: Operation) -> Operation:
        match operation:
            case Create():
                return self._resolve_create(operation)
            case Delete(path, version):
                self._resolve_delete(path, version)
                return Delete(path)
            case SetData(path, data, version):
                self._existing(path, version, Permission.WRITE).version += 1
                return SetData(path, copy_data(data))
            case Check(path, version):
                self._existing(path, version, Permission.READ)
                return Check(path)

    def resolve_acl(self, change: SetAcl) -> SetAcl:
        path, acl, version = change
        check_path(path)
        acl = self._resolved(acl)
        node = self._nodes.get(path)
        if node is None:
            raise NoNodeError(path)
        if node.acl is not OPEN_ACL:
            self._require(Permission.ADMIN, node.acl, path)
        if version not in (ANY_VERSION, node.aversion):
            raise BadVersionError(f"the access control list of {path} has version {node.aversion}, not {version}")
        return change._replace(acl=acl, version=ANY_VERSION)

    def _resolve_create(self, operation: Create) -> Create:
        path, acl = operation.path, operation.acl
        if acl is not OPEN_ACL:
            if "/" not in path or "\0" in path:
                check_path(path)
            acl = self._resolved(acl)
        parent = self._parent(path, Permission.CREATE)
        # With a sequence number, the name may consist of the number only. Then the given path ends with a slash.
        check_path(path + "0" if operation.sequence else path)
        if parent is None:
            raise NoNodeError(parent_of(path))
        if path == ROOT:
            raise NodeExistsError(path)
        if operation.sequence:
            path = f"{path}{parent.created_count:010d}"
        if self._znode(path) is not None:
            raise NodeExistsError(path)
        if parent.is_ephemeral:
            raise NoChildrenForEphemeralsError(parent_of(path))
        parent.created_count += 1
        parent.child_count += 1
        self._znodes[path] = _PendingZnode(0, 0, 0, operation.ephemeral, acl)
        return Create(path, copy_data(operation.data), operation.ephemeral, False, acl)

    def _resolve_delete(self, path: str, version: int) -> None:
        if path == ROOT:
            raise BadArgumentsError("the root znode cannot be deleted")
        parent = self._parent(path, Permission.DELETE)
        check_path(path)
        if parent is None:
            raise NoNodeError(parent_of(path))
        znode = self._znode(path)
        if znode is None:
            raise NoNodeError(path)
        if version not in (ANY_VERSION, znode.version):
            raise _bad_version(path, znode, version)
        if znode.child_count:
            raise NotEmptyError(path)
        parent.child_count -= 1
        self._znodes[path] = None

    def _parent(self, path: str, permission: int) -> _PendingZnode | None:
        if "/" not in path or "\0" in path:
            return None
        parent = self._znode(parent_of(path))
        if parent is not None and parent.acl is not OPEN_ACL:
            self._require(permission, parent.acl, path)
        return parent

    def _existing(self, path: str, version: int, permission: int) -> _PendingZnode:
        check_path(path)
        znode = self._znode(path)
        if znode is None:
            raise NoNodeError(path)
        if znode.acl is not OPEN_ACL:
            self._require(permission, znode.acl, path)
        if version not in (ANY_VERSION, znode.version):
            raise _bad_version(path, znode, version)
        return znode

    def _znode(self, path: str) -> _PendingZnode | None:
        if path not in self._znodes:
            node = self._nodes.get(path)
            self._znodes[path] = None if node is None else _PendingZnode.of(node)
        return self._znodes[path]

    def _resolved(self, acl: Acl) -> Acl:
        return acl if self._caller is None else self._caller.resolved(acl)

    def _require(self, permission: int, acl: Acl, path: str) -> None:
        if self._caller is not None and not self._caller.may(permission, acl):
            raise NoAuthError(path)


def _bad_version(path: str, znode: _PendingZnode, version: int) -> BadVersionError:
    return BadVersionError(f"{path} has version {znode.version}, not {version}")
