"""Notifications of changes: which ones are applied, in which order, and what the others cost."""

import pytest

from headrace.broker.tree.notifications import KEPT_MS, TreeNotifications
from headrace.coordination.client.local_client import LocalCoordination
from headrace.coordination.tree.host import TreeHost
from headrace.testing import ManualClock

PARENT, PREFIX = "/changes", "change_"


class CountingCoordination(LocalCoordination):
    """Counts the znodes that are read."""

    reads = 0

    async def get(self, path, **options):
        self.reads += 1
        return await super().get(path, **options)

    async def exists(self, path, **options):
        self.reads += 1
        return await super().exists(path, **options)


class Follower:
    def __init__(self, coordination, clock):
        self.coordination = coordination
        self.clock = clock
        self.applied = []
        self.notifications = TreeNotifications(
            coordination, clock, PARENT, PREFIX, apply=self._apply, on_changed=lambda: None
        )

    async def _apply(self, content):
        self.applied.append(content)

    async def announce(self, content):
        await self.coordination.create(f"{PARENT}/{PREFIX}", content, sequence=True)

    async def names(self):
        return sorted(await self.coordination.children(PARENT))


@pytest.fixture
async def follower():
    clock = ManualClock()
    coordination = CountingCoordination(TreeHost(clock))
    await coordination.create(PARENT)
    return Follower(coordination, clock)


async def test_new_notifications_are_applied_once_and_in_order(follower):
    await follower.announce(b"before")
    await follower.notifications.skip_to_end()
    for content in (b"a", b"b", b"c"):
        await follower.announce(content)
    await follower.notifications.apply_new()
    await follower.announce(b"d")
    await follower.notifications.apply_new()
    await follower.notifications.apply_new()
    assert follower.applied == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize(
    "name", ["change_x", "change_", "change_99999999999", "zzz", "0000000007", "change_00000000\u06634"]
)
async def test_other_znodes_are_passed_over_and_stay(follower, name):
    await follower.coordination.create(f"{PARENT}/{name}", b"other")
    await follower.notifications.skip_to_end()
    await follower.announce(b"a")
    await follower.notifications.apply_new()
    assert follower.applied == [b"a"]
    follower.clock.advance(KEPT_MS + 1)
    await follower.announce(b"b")
    await follower.notifications.apply_new()
    assert follower.applied == [b"a", b"b"]
    assert len(await follower.names()) == 2
    assert name in await follower.names()


async def test_a_change_reads_its_own_notification_and_not_the_others(follower):
    for number in range(1_000):
        await follower.announce(b"%d" % number)
    await follower.notifications.skip_to_end()
    await follower.announce(b"first")
    await follower.notifications.apply_new()
    before = follower.coordination.reads
    await follower.announce(b"second")
    await follower.notifications.apply_new()
    assert follower.applied == [b"first", b"second"]
    assert follower.coordination.reads - before == 1


async def test_a_notification_is_deleted_by_the_first_change_after_its_time(follower):
    await follower.announce(b"old")
    follower.clock.advance(KEPT_MS - 1_000)
    await follower.announce(b"newer")
    await follower.notifications.apply_new()
    follower.clock.advance(1_000)
    await follower.notifications.apply_new()
    assert len(await follower.names()) == 2
    follower.clock.advance(1)
    await follower.notifications.apply_new()
    assert await follower.names() == ["change_0000000001"]
    follower.clock.advance(KEPT_MS)
    await follower.announce(b"newest")
    await follower.notifications.apply_new()
    assert await follower.names() == ["change_0000000002"]
    assert follower.applied == [b"old", b"newer", b"newest"]
