"""TLS by Kafka's settings: key and trust stores, contexts of ``ssl``, names of subjects.

:class:`TlsOptions` holds the values of the ``ssl.*`` settings. :func:`server_context` and :func:`client_context` make a
context of Python's ``ssl`` from them. Importing this package imports neither ``ssl`` nor ``cryptography``.
"""

from headrace.security.tls.contexts import client_context, server_context
from headrace.security.tls.options import TlsOptions

__all__ = ["TlsOptions", "client_context", "server_context"]
