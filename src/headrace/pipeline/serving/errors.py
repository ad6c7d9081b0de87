"""The errors of the serving layer. Each message says what to do."""

from headrace.client.errors import HeadraceError


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


class QueryError(ServingError):
    """A query failed. ``kind`` is for programs: see the subclasses."""

    kind = "bad_query"


class NotReadOnly(QueryError):
    """The statement would change something, or there are several statements."""

    kind = "read_only"


class QueryTimeout(QueryError):
    """The query ran for longer than its timeout."""

    kind = "timeout"


class NotServed(QueryError):
    """No version of the view serves yet. The query may be right."""

    kind = "not_served"


ONLY_READING = "queries can only read: write one SELECT, VALUES or WITH"
ONE_STATEMENT = "only one statement is allowed: remove everything after the first semicolon"


def too_slow(timeout_ms: int) -> QueryTimeout:
    return QueryTimeout(
        f"the query ran for more than {timeout_ms} ms and was stopped: make it smaller, or allow more time"
    )
