"""The socket between commands and the runner of a project: where it is, who may use it, how messages look.

The socket is ``.headrace/run/spark`` in the project's folder. Only the owner may enter the folder ``run`` (mode 0700)
and use the socket (mode 0600). Both sides also ask the operating system who the other side is, where it can tell.

A message is 4 bytes, the length (big endian), and a JSON object of that length in UTF-8. A connection carries one
request and one answer. Messages contain definitions as the catalog stores them, and names of fields; no code by name
and no paths. Sizes and times are bounded, so a peer that sends too much or nothing at all costs a closed connection.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headrace.client.errors import HeadraceError
from headrace.pipeline.spark.session import STATE_FOLDER

MAX_MESSAGE_BYTES = 8 << 20
_FOLDER, _NAME = "run", "spark"
#: The kernel's limit of a socket's path, with its end.
_MAX_PATH_BYTES = 100
_LENGTH = struct.Struct(">I")
_CREDENTIALS = struct.Struct("iII")

Message = Mapping[str, Any]


class ProtocolError(HeadraceError):
    """The other side is not who it should be, or sends what it should not."""


def socket_folder(project: Path) -> Path:
    return project / STATE_FOLDER / _FOLDER


def check_folder(folder: Path) -> None:
    """
    :raises ProtocolError: if another user could have made the socket in this folder.
    """
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ProtocolError(f"{folder} must be a folder that only its owner can enter")


@contextmanager
def socket_address(folder: Path) -> Iterator[str]:
    """The path of the socket. A path that is too long for a socket is shortened by a descriptor of the folder."""
    path = str(folder / _NAME)
    if len(os.fsencode(path)) <= _MAX_PATH_BYTES:
        yield path
        return
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{opened}/{_NAME}"
    finally:
        os.close(opened)


def check_peer(connection: socket.socket) -> None:
    """
    :raises ProtocolError: if the process at the other end belongs to another user.
    """
    if not hasattr(socket, "SO_PEERCRED"):  # then the modes of folder and socket have to be enough
        return
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(found)
    if user != os.getuid():
        raise ProtocolError("the other side belongs to another user")


def send_message(connection: socket.socket, message: Message, until_s: float) -> None:
    """
    :param until_s: the time of ``time.monotonic`` at which to give up.
    """
    body = json.dumps(message).encode()
    if len(body) > MAX_MESSAGE_BYTES:
        raise ProtocolError(f"a message of {len(body)} bytes is too large")
    _set_timeout(connection, until_s)
    connection.sendall(_LENGTH.pack(len(body)) + body)


def receive_message(connection: socket.socket, until_s: float) -> Message:
    """
    :raises ProtocolError: if the other side does not send a JSON object in time.
    """
    (length,) = _LENGTH.unpack(_received(connection, _LENGTH.size, until_s))
    if length > MAX_MESSAGE_BYTES:
        raise ProtocolError(f"a message of {length} bytes is too large")
    try:
        message = json.loads(_received(connection, length, until_s))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not a message: {error}") from None
    if not isinstance(message, dict):
        raise ProtocolError("not a message: it is no JSON object")
    return message


def _received(connection: socket.socket, count: int, until_s: float) -> bytes:
    found = bytearray()
    while len(found) < count:
        _set_timeout(connection, until_s)
        piece = connection.recv(min(count - len(found), 1 << 16))
        if not piece:
            raise ProtocolError("the other side has closed the connection")
        found += piece
    return bytes(found)


def _set_timeout(connection: socket.socket, until_s: float) -> None:
    left_s = until_s - time.monotonic()
    if left_s <= 0:
        raise ProtocolError("the other side takes too long")
    connection.settimeout(left_s)
