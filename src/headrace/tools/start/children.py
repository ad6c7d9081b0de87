"""Holds what the processes that ``headrace start`` starts have in common: how to run a command, and their end."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

#: Runs ``headrace`` with this Python; the name of a command follows.
HEADRACE = (sys.executable, "-c", "from headrace.tools.main import main; main()")
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def dying_with_parent() -> Callable[[], None]:
    """The function that a child runs before its program starts: the kernel kills the child when this process dies."""
    parent = os.getpid()

    def run() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)  # The parent has died already. In a container, a parent that lives may have the id 1.

    return run
