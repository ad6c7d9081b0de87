"""Finds a TCP port that no process listens on."""

import socket


def free_port() -> int:
    """A port of 127.0.0.1 that is free now. Another process may take it before the caller does."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
