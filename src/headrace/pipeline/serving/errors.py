"""What can go wrong in the serving layer, each with a message that says what to do."""

from headrace.client.errors import HeadraceError


class ServingError(HeadraceError):
    """Something that the serving database could not do."""


class DatabaseUnreachable(ServingError):
    """It is not there, does not answer, or does not let us in."""


class DatabaseBusy(ServingError):
    """Another process held a lock for longer than we wait."""


class UnsuitableSchema(ServingError):
    """Columns or names that a table cannot have."""


class UnknownView(ServingError):
    """There is no such view or version in the catalog."""


class IllegalTransition(ServingError):
    """A version's state does not allow that; nothing was changed."""


class QueryError(ServingError):
    """A query that was not answered. ``kind`` is for programs: see its subclasses."""

    kind = "bad_query"


class NotReadOnly(QueryError):
    """It would change something, or is more than one statement."""

    kind = "read_only"


class QueryTimeout(QueryError):
    """It ran for longer than it may."""

    kind = "timeout"


class NotServed(QueryError):
    """A view that no version serves yet; the query may be right."""

    kind = "not_served"


ONLY_READING = "only reading is possible here: one SELECT, VALUES or WITH"
ONE_STATEMENT = "one statement at a time: leave out what follows the first semicolon"


def too_slow(timeout_ms: int) -> QueryTimeout:
    return QueryTimeout(
        f"the query ran for more than {timeout_ms} ms and was stopped: ask for less, or allow more time"
    )
