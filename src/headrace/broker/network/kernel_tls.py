"""Finds out whether the kernel and OpenSSL could encrypt TLS in the kernel (kTLS), for one line in the log.

With kTLS, ``sendfile`` would send a file over TLS without a copy in this process. Headrace does not use kTLS
(``docs/performance.md`` has the facts):

* OpenSSL gives the keys to the kernel only if its session works on the socket itself. Sessions here work on buffers in
  memory (``tls_session.py``).
* Up to Python 3.13, ``ssl`` neither calls ``SSL_sendfile`` nor says whether the kernel encrypts a connection. An
  ``os.sendfile`` on a socket whose keys the kernel does not have would send records in plain text.

The kernel is asked for its TLS protocol on a socket that is not connected. A kernel that has the protocol answers
ENOTCONN, because the protocol needs a connection. A kernel that does not have it answers ENOENT.
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Callable
from logging import getLogger
from typing import NamedTuple

logger = getLogger(__name__)

#: From linux/tcp.h. Python's socket module has no such constant.
_TCP_ULP = 31
_FIRST_OPENSSL = (3, 0)


class KernelTls(NamedTuple):
    """Whether the kernel and OpenSSL offer kTLS, and what is missing."""

    is_available: bool
    #: Empty if kTLS is available.
    missing: str = ""


def ask_kernel() -> int:
    """Asks the kernel for its TLS protocol. Returns the number of the error; 0 if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.setsockopt(socket.IPPROTO_TCP, _TCP_ULP, b"tls")
        except OSError as error:
            return error.errno or errno.EIO
    return 0


def find_kernel_tls(
    ask: Callable[[], int] = ask_kernel, openssl: tuple[int, ...] = ssl.OPENSSL_VERSION_INFO
) -> KernelTls:
    """
    :param ask: asks the kernel.
    :param openssl: the version of OpenSSL.
    """
    if openssl[:2] < _FIRST_OPENSSL:
        return KernelTls(False, f"OpenSSL {openssl[0]}.{openssl[1]} is older than 3.0")
    number = ask()
    if number not in (0, errno.ENOTCONN):
        name = errno.errorcode.get(number, str(number))
        return KernelTls(False, f"the kernel has no TLS, or its module tls is not loaded ({name})")
    return KernelTls(True)


def log_kernel_tls(listener: str, found: KernelTls) -> None:
    how = "available and not used" if found.is_available else f"not available, {found.missing}"
    logger.info("listener %s: OpenSSL encrypts in this process; kernel TLS is %s", listener, how)
