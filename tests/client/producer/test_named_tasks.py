"""Named tasks: the next caller that needs the result starts a task again."""

import asyncio

from headrace.client.errors import BrokerError, BrokerUnreachable, ErrorCode, HeadraceError
from headrace.client.producer.named_tasks import NamedTasks
from headrace.client.retry import Backoff


class Seeker:
    """Wants something that its task finds at the n-th try; looks when it is told to, and only then."""

    def __init__(self, outcomes: list[HeadraceError | None]) -> None:
        self.tasks = NamedTasks(Backoff(0, 0), self.look, self._failed)
        self.failures: list[tuple[str, HeadraceError]] = []
        self.tries = 0
        self.has_it = asyncio.Event()
        self.has_failed = asyncio.Event()
        self._outcomes = outcomes

    def look(self) -> None:
        if not self.has_it.is_set() and not self.failures:
            self.tasks.start("it", self._seek)

    def _failed(self, name: str, error: HeadraceError) -> None:
        self.failures.append((name, error))
        self.has_failed.set()

    async def _seek(self) -> None:
        outcome = self._outcomes[self.tries]
        self.tries += 1
        if outcome is not None:
            raise outcome
        self.has_it.set()


async def test_a_failure_that_may_pass_is_followed_by_another_try_though_nobody_else_looks() -> None:
    seeker = Seeker([BrokerUnreachable("not up"), BrokerUnreachable("not up yet"), None])
    seeker.look()
    await asyncio.wait_for(seeker.has_it.wait(), 10)
    assert seeker.tries == 3
    await seeker.tasks.stop()


async def test_who_looks_twice_starts_one_task() -> None:
    seeker = Seeker([None, None])
    seeker.look()
    seeker.look()
    await asyncio.wait_for(seeker.has_it.wait(), 10)
    assert seeker.tries == 1
    await seeker.tasks.stop()


async def test_a_failure_that_stays_is_told_and_not_tried_again() -> None:
    refused = BrokerError(ErrorCode.cluster_authorization_failed, "no")
    seeker = Seeker([refused, None])
    seeker.look()
    await asyncio.wait_for(seeker.has_failed.wait(), 10)
    assert seeker.failures == [("it", refused)]
    assert seeker.tries == 1
    await seeker.tasks.stop()


async def test_what_was_stopped_is_not_started() -> None:
    seeker = Seeker([None])
    await seeker.tasks.stop()
    seeker.look()
    await asyncio.sleep(0)
    assert seeker.tries == 0
