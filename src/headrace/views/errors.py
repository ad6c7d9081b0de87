"""The errors of readers of views. Each message says what to do."""

from headrace.client.errors import HeadraceError


class ViewsError(HeadraceError):
    """Views cannot be read."""


class Unreachable(ViewsError):
    """The server does not answer, or it is not a server of views."""


class Unauthorized(ViewsError):
    """The server does not accept the token or the password."""


class ServerError(ViewsError):
    """The server cannot answer now. ``kind`` is for programs: ``busy``, ``too_large``, ``unreachable``, ..."""

    kind = "internal"


class QueryError(ViewsError):
    """A query failed. ``kind`` is for programs: see the subclasses.

    :ivar position: the character of the statement, from 1, at which the database found the error; None if unknown.
    """

    kind = "bad_query"
    position: int | None = None


class NotReadOnly(QueryError):
    """The statement would change something, or there are several statements."""

    kind = "read_only"


class QueryTimeout(QueryError):
    """The query ran for longer than its timeout."""

    kind = "timeout"


class NotServed(QueryError):
    """No version of the view serves yet. The query may be right."""

    kind = "not_served"


class DifferentOffsets(QueryError):
    """The views of the statement count other records of a common topic, and the reader asked for the same ones."""

    kind = "different_offsets"
