"""The shard of a group, and the errors until the shard is loaded."""

import pytest
from group_harness import GroupHarness, ListJournal

from headrace.groups.coordinator import GroupCoordinator
from headrace.protocol.errors import CoordinatorLoadInProgress, InvalidGroupId, NotCoordinator, UnknownMemberId
from headrace.protocol.internal_records import partition_for


@pytest.fixture
def harness():
    return GroupHarness()


@pytest.fixture
def coordinator(harness):
    return GroupCoordinator(harness.context, lambda: 50)


def journal(index, batches=()):
    made = ListJournal(batches)
    made.index = index
    return made


def run(loading):
    return sum(loading)


def test_nothing_is_ours_at_first(coordinator):
    assert coordinator.shards() == []
    assert not coordinator.is_loading
    with pytest.raises(NotCoordinator):
        coordinator.shard_for("g")


def test_a_group_belongs_to_the_partition_of_its_name(coordinator):
    index = partition_for("g", 50)
    assert coordinator.index_of("g") == index
    run(coordinator.load(journal(index)))
    assert coordinator.shard_for("g").index == index
    other = next(name for name in "abcdef" if coordinator.index_of(name) != index)
    with pytest.raises(NotCoordinator):
        coordinator.shard_for(other)


def test_groups_are_answered_once_their_log_was_applied(harness, coordinator):
    harness.join("a")
    harness.settles()
    harness.clients["a"].leaves()
    index = coordinator.index_of("g")
    loading = coordinator.load(journal(index, harness.journal.written))
    assert coordinator.is_loading
    for _ in harness.journal.written:
        next(loading)
        with pytest.raises(CoordinatorLoadInProgress):
            coordinator.shard_for("g")
    assert coordinator.shards() == []
    run(loading)
    assert coordinator.shard_for("g").groups["g"].generation_id == 2
    assert not coordinator.is_loading


def test_a_partition_can_be_lost_while_it_is_loaded(harness, coordinator):
    harness.join("a")
    harness.settles()
    index = coordinator.index_of("g")
    loading = coordinator.load(journal(index, harness.journal.written * 2))
    next(loading)
    coordinator.unload(index)
    run(loading)
    assert not coordinator.has(index)
    with pytest.raises(NotCoordinator):
        coordinator.shard_for("g")


def test_a_log_that_cannot_be_read_is_not_served(coordinator, caplog):
    index = coordinator.index_of("g")
    run(coordinator.load(journal(index, [(-1, [(b"\x00\x02\x00", b"")])])))
    assert not coordinator.has(index)
    assert f"cannot load the groups of partition {index}" in caplog.text


def test_who_waits_is_told_when_the_partition_is_lost(harness, coordinator):
    index = coordinator.index_of("g")
    run(coordinator.load(journal(index)))
    harness.shard = coordinator.shard_for("g")
    harness.join("a")
    coordinator.unload(index)
    assert harness.noted() == ["a join failed: not_coordinator"]
    assert not coordinator.has(index)


def test_records_of_types_that_only_newer_brokers_know_are_passed_over(coordinator):
    index = coordinator.index_of("g")
    run(coordinator.load(journal(index, [(-1, [(b"\x00\x7f???", b"???")])])))
    assert coordinator.shard_for("g").groups == {}


def test_members_have_a_group_with_a_name(harness):
    with pytest.raises(InvalidGroupId):
        harness.shard.member_group("")
    with pytest.raises(UnknownMemberId):
        harness.shard.member_group("g")
