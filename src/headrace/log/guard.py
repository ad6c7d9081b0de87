"""How a failed file operation becomes an offline log dir: one place for all that is not the hot path."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from headrace.log.home import Home

P = ParamSpec("P")
R = TypeVar("R")


class _HasHome(Protocol):
    home: Home


L = TypeVar("L", bound=_HasHome)


def guarded(method: Callable[Concatenate[L, P], R]) -> Callable[Concatenate[L, P], R]:
    """Refuses when the log's dir is offline; takes it offline when the method meets an ``OSError``.

    :raises StorageError: in both cases.
    """

    @wraps(method)
    def run(log: L, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if log.home.error is not None:
            raise log.home.offline()
        try:
            return method(log, *args, **kwargs)
        except OSError as error:
            raise log.home.fail(error) from error

    return run
