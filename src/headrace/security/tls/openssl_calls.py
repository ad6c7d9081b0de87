"""Calls the one function of OpenSSL that Python's ``ssl`` lacks before 3.15: the cipher suites of TLS 1.3.

CPython's context object is an object header, then the pointer to OpenSSL's context. The caller checks the effect by
``get_ciphers``; where the function cannot be found (OpenSSL is linked into Python), nothing happens.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ssl import SSLContext

#: The versions of CPython whose layout of the context object is known.
_KNOWN_VERSIONS = range(11, 15)


def set_ciphersuites(context: SSLContext, names: str) -> None:
    """Sets the cipher suites of TLS 1.3, if that is possible here."""
    import _ssl
    import ctypes

    library = getattr(_ssl, "__file__", None)
    if sys.implementation.name != "cpython" or sys.version_info.minor not in _KNOWN_VERSIONS or library is None:
        return
    try:
        function = ctypes.CDLL(library).SSL_CTX_set_ciphersuites
    except (OSError, AttributeError):
        return
    function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_char_p], ctypes.c_int
    pointer = ctypes.c_void_p.from_address(id(context) + object.__basicsize__)
    function(pointer, names.encode())
