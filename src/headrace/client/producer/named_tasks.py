"""Runs background tasks, at most one per name.

Code that finds something missing starts the task that gets it. If the task runs already, nothing happens. When a task
has ended, ``then`` is called, so that the code can check again and start the task again. After a failure that may pass,
``then`` is called only after a growing pause.
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
    """The background tasks of one owner."""

    def __init__(
        self, backoff: Backoff, then: Callable[[], object], on_failure: Callable[[str, HeadraceError], object]
    ) -> None:
        """
        :param then: called when a task has ended.
        :param on_failure: called with the task's name for a failure that will not pass.
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
        # The name must be free before `then` runs, because `then` may start the task again.
        self._tasks.pop(name, None)
        if not task.cancelled():
            task.result()  # An error that is no HeadraceError is a bug in this client: the event loop reports it.
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
        """Cancels all tasks. No task is started from now on."""
        self._is_stopped = True
        await cancel_and_wait(list(self._tasks.values()))
