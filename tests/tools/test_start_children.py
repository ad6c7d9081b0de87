"""The processes that ``headrace start`` starts."""

import os
import shutil
import subprocess
import sys

import pytest

_PARENT = """
import os, subprocess, sys
from headrace.tools.start.children import dying_with_parent

child = subprocess.run([sys.executable, "-c", "print('runs')"], preexec_fn=dying_with_parent(), capture_output=True)
print(os.getpid(), child.returncode, child.stdout.decode().strip())
"""


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root, for a process with id 1")
def test_a_parent_with_the_id_1_is_alive():
    """The first process of a container has this id."""
    command = ["unshare", "--pid", "--fork", sys.executable, "-c", _PARENT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == "1 0 runs\n", done.stderr
