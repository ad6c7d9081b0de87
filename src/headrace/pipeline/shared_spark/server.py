"""The runner's side: answers the requests of commands on threads of its own.

A few requests are answered at a time. A further request gets ``{"busy": true}`` at once, and its command then starts a
Spark of its own. So user code that hangs while a query is checked cannot block the runner, and blocks no command.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from logging import getLogger
from pathlib import Path
from typing import Self

from headrace.pipeline.shared_spark.protocol import (
    Message,
    ProtocolError,
    check_folder,
    check_peer,
    receive_message,
    send_message,
    socket_address,
    socket_folder,
)

logger = getLogger(__name__)

_MAX_REQUESTS = 2
_TRANSFER_S = 5.0


class SharedSparkServer:
    """
    :param project: the folder of the project.
    :param answer: computes the answer of a request. It may raise: the command then starts a Spark of its own.
    """

    def __init__(self, project: Path, answer: Callable[[Message], Message]) -> None:
        self._folder, self._answer = socket_folder(project), answer
        self._free = threading.Semaphore(_MAX_REQUESTS)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._is_closed = False

    def __enter__(self) -> Self:
        """
        :raises OSError: if the socket cannot be created.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder.chmod(0o700)
        check_folder(self._folder)
        with socket_address(self._folder) as path:
            with suppress(FileNotFoundError):  # of a runner that was killed: only one runs at a time
                os.unlink(path)
            self._socket.bind(path)
            os.chmod(path, 0o600)
        self._socket.listen(_MAX_REQUESTS)
        threading.Thread(target=self._accept, name="shared Spark", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with socket_address(self._folder) as path, suppress(FileNotFoundError):
            os.unlink(path)

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                connection, _ = self._socket.accept()
            except OSError as error:
                if not self._is_closed:
                    logger.warning("commands can no longer use this Spark: %s", error)
                return
            is_free = self._free.acquire(blocking=False)
            work = self._serve if is_free else self._refuse
            threading.Thread(target=work, args=(connection,), name="shared Spark request", daemon=True).start()

    def _refuse(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, ProtocolError):
            check_peer(connection)
            send_message(connection, {"busy": True}, time.monotonic() + _TRANSFER_S)

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                answer = self._received_and_answered(connection)
                send_message(connection, answer, time.monotonic() + _TRANSFER_S)
        except (OSError, ProtocolError) as error:
            logger.debug("a command's request was not answered: %s", error)

    def _received_and_answered(self, connection: socket.socket) -> Message:
        """Makes room for the next request before the answer is sent: a command may ask again once it has its answer."""
        try:
            check_peer(connection)
            return self._answered(receive_message(connection, time.monotonic() + _TRANSFER_S))
        finally:
            self._free.release()

    def _answered(self, request: Message) -> Message:
        try:
            return self._answer(request)
        except BaseException as error:  # user code may even raise SystemExit; this thread survives
            logger.debug("a command's request failed", exc_info=True)
            return {"error": f"{type(error).__name__}: {error}"}
