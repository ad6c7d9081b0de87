"""Holds what all HTTP endpoints share: who may read them, TLS, and limits.

The endpoints are the metrics of brokers and of views, and the answers to queries.

``protection.py`` decides which address may be served with which protection, ``access.py`` checks the credentials of a
request, ``metrics_server.py`` serves metrics on threads.
"""
