"""Tasks of which there is at most one of a name, that are started again and again until they have done what is wanted.

Whoever finds that something is missing starts its task; if that runs already, nothing happens. When a task has ended
``then`` is called, after a growing pause if it has failed in a way that may pass, so that who still misses something
finds out and starts it again.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from logging import getLogger
from typing import Any

from headrace.client.errors import BrokerUnreachable, HeadraceError, KafkaTimeout
from headrace.client.retry import Backoff
from headrace.event_loop import cancel_and_wait

logger = getLogger(__name__)


class NamedTasks:
    def __init__(
        self, backoff: Backoff, then: Callable[[], object], on_failure: Callable[[str, HeadraceError], object]
    ) -> None:
        """
        :param on_failure: told of a failure that will not pass, with the task's name.
        """
        self._backoff = backoff
        self._then = then
        self._on_failure = on_failure
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._failures: dict[str, int] = {}
        self._is_stopped = False

    def start(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if name in self._tasks or self._is_stopped:
            return
        self._tasks[name] = task = asyncio.get_running_loop().create_task(self._run(name, work))
        task.add_done_callback(partial(self._ended, name))

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        # The name is free before anybody looks again: a task that was still there then would not be started.
        self._tasks.pop(name, None)
        if not task.cancelled():
            task.result()  # what is no HeadraceError is a fault of ours: the loop reports it
            self._then()

    async def _run(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
            self._failures.pop(name, None)
        except HeadraceError as error:
            if isinstance(error, BrokerUnreachable | KafkaTimeout) or getattr(error, "is_retriable", False):
                self._failures[name] = failures = self._failures.get(name, 0) + 1
                logger.info("%s: %s", name, error)
                await asyncio.sleep(self._backoff.delay_ms(failures) / 1000)
            else:
                logger.warning("%s: %s", name, error)
                self._on_failure(name, error)

    async def stop(self) -> None:
        """Cancels them all; none is started from now on."""
        self._is_stopped = True
        await cancel_and_wait(list(self._tasks.values()))
