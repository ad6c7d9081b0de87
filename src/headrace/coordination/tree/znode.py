"""One znode, and the rules for its path."""

from dataclasses import dataclass

from headrace.coordination.acls import OPEN_ACL, Acl
from headrace.coordination.interface import BadArgumentsError, Stat

ROOT = "/"
_FEW_CHILDREN = 4


@dataclass(slots=True)
class Znode:
    #: None if a client wrote null, which ZooKeeper distinguishes from empty data.
    data: bytes | None
    czxid: int
    mzxid: int
    pzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int = 0
    ephemeral_owner: int = 0
    #: How many children were created so far, including the deleted ones.
    created_count: int = 0
    #: The names of the children. Most znodes have none or one, and a set of its own would take 216 bytes.
    children: set[str] | tuple[str, ...] = ()
    acl: Acl = OPEN_ACL
    #: How often the access control list was changed.
    aversion: int = 0

    @property
    def data_length(self) -> int:
        return 0 if self.data is None else len(self.data)

    def add_child(self, name: str) -> None:
        """Adds a child that is new."""
        if isinstance(self.children, set):
            self.children.add(name)
        elif len(self.children) < _FEW_CHILDREN:
            self.children = (*self.children, name)
        else:
            self.children = {*self.children, name}

    def remove_child(self, name: str) -> None:
        if isinstance(self.children, set):
            self.children.remove(name)
        else:
            self.children = tuple(child for child in self.children if child != name)

    def stat(self) -> Stat:
        return Stat(
            czxid=self.czxid,
            mzxid=self.mzxid,
            ctime_ms=self.ctime_ms,
            mtime_ms=self.mtime_ms,
            version=self.version,
            # Creations plus deletions. The deletions are the created children that are not here any more.
            cversion=2 * self.created_count - len(self.children),
            aversion=self.aversion,
            ephemeral_owner=self.ephemeral_owner,
            data_length=self.data_length,
            num_children=len(self.children),
            pzxid=self.pzxid,
        )


def parent_of(path: str) -> str:
    return path[: path.rindex("/")] or ROOT


def name_of(path: str) -> str:
    return path[path.rindex("/") + 1 :]


def check_path(path: str) -> None:
    """Checks ZooKeeper's rules: absolute; no empty, ``.`` or ``..`` part; no control or private characters.

    :raises BadArgumentsError:
    """
    if path == ROOT:
        return
    if not path.startswith("/"):
        raise BadArgumentsError(f"the path {path!r} does not start with /")
    for part in path[1:].split("/"):
        if part in ("", ".", ".."):
            raise BadArgumentsError(f"the path {path!r} contains the part {part!r}")
    if not (path.isascii() and path.isprintable()) and any(map(_is_forbidden, path)):
        raise BadArgumentsError(f"the path {path!r} contains a control character or a private character")


def _is_forbidden(character: str) -> bool:
    return (
        character <= "\x1f"
        or "\x7f" <= character <= "\x9f"
        or "\ud800" <= character <= "\uf8ff"
        or "\ufff0" <= character <= "\uffff"
    )
