"""Restricts a client to one folder of a ZooKeeper tree (a chroot): the client sees the folder as the whole tree."""

from headrace.coordination.interface import (
    BadArgumentsError,
    Check,
    Create,
    Delete,
    NodeExistsError,
    Operation,
    SetData,
)
from headrace.coordination.tree.znode import ROOT, check_path


class Chroot:
    """Adds the folder to the paths of requests, and removes it from the paths of answers.

    Paths are checked here, because with the folder in front ZooKeeper would see another path: the root would become the
    folder itself.
    """

    def __init__(self, path: str) -> None:
        """
        :param path: the folder; empty for no chroot.
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
        # With a sequence number, the name may consist of the number only. Then the given path ends with a slash.
        check_path(operation.path + "0" if operation.sequence else operation.path)
        return operation._replace(path=self.path + operation.path)

    def delete(self, operation: Delete) -> Delete:
        if operation.path == ROOT:
            raise BadArgumentsError("the root znode cannot be deleted")
        return operation._replace(path=self.checked(operation.path))

    def checked(self, path: str) -> str:
        """
        :raises BadArgumentsError: if the path is not valid.
        """
        check_path(path)
        return self.add_to(path)

    def add_to(self, path: str) -> str:
        return self.path + path if path != ROOT else self.path or ROOT

    def remove_from(self, path: str) -> str:
        return path[len(self.path) :] or ROOT


def parse_connect(connect: str) -> tuple[str, str]:
    """Splits ``host:port,host:port/chroot`` into the servers and the chroot (empty for none).

    :raises BadArgumentsError: if the text does not have this form.
    """
    hosts, slash, chroot = connect.strip().partition("/")
    if not hosts or not all(map(_is_address, hosts.split(","))):
        raise BadArgumentsError(f"{connect!r} is not an address of ZooKeeper; the form is HOST:PORT,HOST:PORT/CHROOT")
    chroot = (slash + chroot).rstrip("/")
    if chroot:
        check_path(chroot)
    return hosts, chroot


def _is_address(text: str) -> bool:
    text = text.strip()
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        return bool(text)  # without a port, ZooKeeper's default port is used
    return bool(host) and port.isascii() and port.isdecimal() and 0 < int(port) < 65536
