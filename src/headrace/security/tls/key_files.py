"""Gives a private key to ``ssl``, which loads keys only from files.

The file is anonymous memory (``memfd``), so the key never reaches a disk, and nobody can open it by name except this
process's user by ``/proc``. Where there is no memfd, it is a temporary file that only the owner may read, and that is
removed before this module returns.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING

from headrace.security.tls.pem import to_pem

if TYPE_CHECKING:
    from headrace.security.tls.stores import KeyEntry


@contextmanager
def key_file(entry: KeyEntry) -> Iterator[str]:
    """Yields the path of a PEM file with the key and its certificates."""
    text = to_pem("PRIVATE KEY", entry.key) + "".join(to_pem("CERTIFICATE", data) for data in entry.chain)
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        descriptor = os.memfd_create("headrace-key", os.MFD_CLOEXEC)
        try:
            with os.fdopen(descriptor, "wb", closefd=False) as file:
                file.write(text.encode())
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with NamedTemporaryFile("w", prefix="headrace-", encoding="ascii") as named:  # mode 0600
            named.write(text)
            named.flush()
            yield named.name
