"""The schedule of a member's heartbeats, and the time after which a member was away for too long."""

from headrace.client.membership.heartbeat import HeartbeatSchedule
from headrace.testing import ManualClock


def made() -> tuple[HeartbeatSchedule, ManualClock]:
    clock = ManualClock()
    return HeartbeatSchedule(clock, interval_ms=3_000, max_poll_interval_ms=10_000), clock


def test_a_heartbeat_is_due_every_interval():
    heartbeat, clock = made()
    assert heartbeat.next_ms() == 3_000
    clock.advance(2_999)
    assert not heartbeat.is_due()
    assert heartbeat.next_ms() == 1
    clock.advance(1)
    assert heartbeat.is_due()
    assert heartbeat.next_ms() == 0
    heartbeat.sent()
    assert heartbeat.next_ms() == 3_000


def test_who_does_not_come_back_is_away():
    heartbeat, clock = made()
    heartbeat.poll_began()
    clock.advance(60_000)
    heartbeat.sent()
    assert not heartbeat.is_poll_overdue()  # a poll may take long
    heartbeat.poll_ended()
    clock.advance(9_000)
    assert not heartbeat.is_poll_overdue()
    heartbeat.sent()
    assert heartbeat.next_ms() == 1_000
    clock.advance(1_000)
    assert heartbeat.is_poll_overdue()
    heartbeat.poll_began()
    assert not heartbeat.is_poll_overdue()
