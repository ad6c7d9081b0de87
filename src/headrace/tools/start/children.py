"""Holds what the processes that ``headrace start`` starts have in common: how to run a command, and their end."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

#: Runs ``headrace`` with this Python; the name of a command follows.
HEADRACE = (sys.executable, "-c", "from headrace.tools.main import main; main()")
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """Runs in the child, before its program starts: the kernel kills the child when the parent dies."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:
        os._exit(1)  # The parent has died already.
