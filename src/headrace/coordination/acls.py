"""The access control list of a znode: who has which permissions. ZooKeeper's model. No I/O.

An entry gives permissions to an identity, ``(scheme, id)``. A client has a permission if one entry that matches one of
its identities gives it. The schemes are ``world`` (the id ``anyone`` matches every client), ``digest`` (``user:hash``,
for clients that logged in with the user's password), ``ip`` (an address, or a network such as ``10.0.0.0/8``) and
``x509`` (the subject of a client's certificate). ``auth`` is for requests only: the server replaces it by the
identities with which the client logged in.

A znode's list says nothing about the children of the znode: every child has its own list.
"""

from typing import Final, NamedTuple, TypeAlias


class Permission:
    """CREATE and DELETE are about children, and are checked at the parent. ADMIN allows to change the list itself.

    Plain numbers, because each request needs one, and an IntFlag takes a microsecond.
    """

    READ: Final = 1
    WRITE: Final = 2
    CREATE: Final = 4
    DELETE: Final = 8
    ADMIN: Final = 16


#: The letter of each permission in texts, in the order of ZooKeeper's shell.
PERMISSION_LETTERS = {
    "c": Permission.CREATE,
    "d": Permission.DELETE,
    "r": Permission.READ,
    "w": Permission.WRITE,
    "a": Permission.ADMIN,
}
ALL_PERMISSIONS = sum(PERMISSION_LETTERS.values())


class AclEntry(NamedTuple):
    #: A sum of :class:`Permission`. ZooKeeper keeps other bits, too; they have no meaning.
    permissions: int
    scheme: str
    id: str


Acl: TypeAlias = tuple[AclEntry, ...]

#: Everybody may do everything. Code compares by ``is``, so every open list must be this object (see :func:`shared`).
OPEN_ACL: Acl = (AclEntry(ALL_PERMISSIONS, "world", "anyone"),)
READ_BY_ALL = AclEntry(Permission.READ, "world", "anyone")
#: The server replaces this entry by the identities with which the client logged in.
CREATOR_ALL = AclEntry(ALL_PERMISSIONS, "auth", "")
#: More entries than anybody needs. ZooKeeper has no limit, but each request of a client walks the list.
MAX_ACL_ENTRIES = 1_000


def shared(acl: Acl) -> Acl:
    """The same list; :data:`OPEN_ACL` itself if the list is open."""
    return OPEN_ACL if acl == OPEN_ACL else acl
