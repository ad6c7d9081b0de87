"""Reads views over HTTP, from ``headrace views serve``, into pandas, polars or Arrow::

    import headrace.views

    views = headrace.views.connect("https://views.example.com:8090", token="...", ca_file="ca.pem")
    pages = views.query("SELECT * FROM pages").to_pandas()

It needs ``headrace[arrow]``, and neither Spark nor a database driver. ``connection`` sends queries, ``answers`` has the
class of an answer, ``errors`` has the errors.
"""

from headrace.views.answers import Answer, AsOf
from headrace.views.connection import Connection, connect
from headrace.views.errors import (
    DifferentOffsets,
    NotReadOnly,
    NotServed,
    QueryError,
    QueryTimeout,
    ServerError,
    Unauthorized,
    Unreachable,
    ViewsError,
)

__all__ = [
    "Answer",
    "AsOf",
    "Connection",
    "DifferentOffsets",
    "NotReadOnly",
    "NotServed",
    "QueryError",
    "QueryTimeout",
    "ServerError",
    "Unauthorized",
    "Unreachable",
    "ViewsError",
    "connect",
]
