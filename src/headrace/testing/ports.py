"""Finds a TCP port that no process listens on."""

import random
import socket

#: Linux gives outgoing connections ports from 32768 on. A server can be restarted on a port below that.
_PORTS = range(10_000, 32_768)
#: Tests may set the seed of the module ``random``, and then all processes would choose the same ports.
_CHOICE = random.SystemRandom()


def free_port() -> int:
    """A port of 127.0.0.1 that is free now, and that no outgoing connection takes. Another server may take it before
    the caller does."""
    while True:
        port = _CHOICE.choice(_PORTS)
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
