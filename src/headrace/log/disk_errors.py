"""Takes a log dir offline when a file operation fails: one decorator for all methods that are not on the hot path."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from headrace.log.log_dir import LogDir

P = ParamSpec("P")
R = TypeVar("R")


class _HasLogDir(Protocol):
    log_dir: LogDir


L = TypeVar("L", bound=_HasLogDir)


def takes_dir_offline(method: Callable[Concatenate[L, P], R]) -> Callable[Concatenate[L, P], R]:
    """Makes a method fail if the log's dir is offline, and take the dir offline if the method raises ``OSError``.

    :raises StorageError: in both cases.
    """

    @wraps(method)
    def run(log: L, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if log.log_dir.error is not None:
            raise log.log_dir.offline_error()
        try:
            return method(log, *args, **kwargs)
        except OSError as error:
            raise log.log_dir.take_offline(error) from error

    return run
