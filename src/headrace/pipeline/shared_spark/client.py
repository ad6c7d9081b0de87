"""A command's side: sends a request to the runner of the project, if one runs."""

from __future__ import annotations

import socket
import time
from logging import getLogger
from pathlib import Path

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

_CONNECT_S = 1.0


def has_runner(project: Path) -> bool:
    """Whether a runner may answer: its socket is there. A runner that was killed leaves its socket behind."""
    with socket_address(socket_folder(project)) as path:
        return Path(path).exists()


def ask_runner(project: Path, request: Message, timeout_s: float) -> Message | None:
    """The runner's answer; None if no runner runs, or if it is busy, too slow or of another version of Headrace.

    :param project: the folder of the project.
    """
    folder = socket_folder(project)
    try:
        check_folder(folder)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_CONNECT_S)
            with socket_address(folder) as path:
                connection.connect(path)
            check_peer(connection)
            until_s = time.monotonic() + timeout_s
            send_message(connection, request, until_s)
            answer = receive_message(connection, until_s)
    except (OSError, ProtocolError) as error:
        logger.debug("no runner answers: %s", error)
        return None
    if "answer" not in answer:
        logger.debug("the runner does not answer this request: %s", answer)
        return None
    found = answer["answer"]
    return found if isinstance(found, dict) else None
