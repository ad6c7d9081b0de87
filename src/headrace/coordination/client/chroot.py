"""A ZooKeeper's address with a folder of its tree: clients of that folder see it as the whole tree."""

from headrace.coordination.interface import (
    BadArgumentsError,
    Check,
    Create,
    Delete,
    NodeExistsError,
    Operation,
    SetData,
)
from headrace.coordination.tree.znode_tree import ROOT, check_path


class Chroot:
    """What is asked for gets the folder before its path, and what is answered loses it again.

    ZooKeeper would answer for the folder itself, so what is wrong with a path is said here.
    """

    def __init__(self, path: str) -> None:
        """
        :param path: empty for none.
        """
        self.path = path

    def operation(self, operation: Operation) -> Operation:
        match operation:
            case Create():
                return self.create(operation)
            case Delete():
                return self.delete(operation)
            case SetData() | Check():
                return operation._replace(path=self.checked(operation.path))

    def create(self, operation: Create) -> Create:
        if operation.path == ROOT:
            raise NodeExistsError(ROOT)
        # With a sequence number the name may be all number, and the path as given end in a slash.
        check_path(operation.path + "0" if operation.sequence else operation.path)
        return operation._replace(path=self.path + operation.path)

    def delete(self, operation: Delete) -> Delete:
        if operation.path == ROOT:
            raise BadArgumentsError("the root cannot be deleted")
        return operation._replace(path=self.checked(operation.path))

    def checked(self, path: str) -> str:
        """
        :raises BadArgumentsError: if it is no path.
        """
        check_path(path)
        return self.put_before(path)

    def put_before(self, path: str) -> str:
        return self.path + path if path != ROOT else self.path or ROOT

    def taken_from(self, path: str) -> str:
        return path[len(self.path) :] or ROOT


def parse_connect(connect: str) -> tuple[str, str]:
    """The servers and the chroot (empty for none) of ``host:port,host:port/chroot``.

    :raises BadArgumentsError: if it is not of that form.
    """
    hosts, slash, chroot = connect.strip().partition("/")
    if not hosts or not all(map(_is_address, hosts.split(","))):
        raise BadArgumentsError(f"{connect!r} is no HOST:PORT,HOST:PORT/CHROOT of a ZooKeeper")
    chroot = (slash + chroot).rstrip("/")
    if chroot:
        check_path(chroot)
    return hosts, chroot


def _is_address(text: str) -> bool:
    text = text.strip()
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        return bool(text)  # ZooKeeper's own port is meant
    return bool(host) and port.isascii() and port.isdecimal() and 0 < int(port) < 65536
