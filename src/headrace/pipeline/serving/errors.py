"""The errors of the serving layer. Each message says what to do.

Those of queries are also errors of ``headrace.views``: a reader handles them alike, over HTTP and in this process.
"""

from headrace.client.errors import HeadraceError
from headrace.views import errors as views_errors


class ServingError(HeadraceError):
    """An operation on the serving database failed."""


class DatabaseUnreachable(ServingError):
    """The database does not exist, does not answer, or refuses the login."""


class DatabaseBusy(ServingError):
    """Another process held a lock for too long."""


class UnsuitableSchema(ServingError):
    """A table cannot have these columns or names."""


class DuplicateKey(ServingError):
    """Two rows of an answer have the same key, although the view's file says that the key identifies a row."""


class UnknownView(ServingError):
    """The catalog has no such view or version."""


class IllegalTransition(ServingError):
    """The state of a version does not allow the operation. Nothing was changed."""


class AnswerTooLarge(ServingError):
    """The server has no room for the answer."""


class ServerBusy(ServingError):
    """The server works for as many readers as it may."""


class PageGone(ServingError):
    """The server does not hold the answer of a page any more, or never did."""


class QueryError(ServingError, views_errors.QueryError):
    """A query failed. ``kind`` is for programs: see the subclasses."""


class NotReadOnly(QueryError, views_errors.NotReadOnly):
    """The statement would change something, or there are several statements."""


class QueryTimeout(QueryError, views_errors.QueryTimeout):
    """The query ran for longer than its timeout."""


class NotServed(QueryError, views_errors.NotServed):
    """No version of the view serves yet. The query may be right."""


class DifferentOffsets(QueryError, views_errors.DifferentOffsets):
    """The views of the statement count other records of a common topic, and the reader asked for the same ones."""


ONLY_READING = "queries can only read: write one SELECT, VALUES or WITH"
ONE_STATEMENT = "only one statement is allowed: remove everything after the first semicolon"


def too_slow(timeout_ms: int) -> QueryTimeout:
    return QueryTimeout(
        f"the query ran for more than {timeout_ms} ms and was stopped: make it smaller, or allow more time"
    )
