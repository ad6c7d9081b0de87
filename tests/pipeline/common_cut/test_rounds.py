"""Rounds of followers, decided without threads, on a clock that the tests move."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.pipeline.common_cut.agreement import MAX_ROUND_OFFSETS
from headrace.pipeline.common_cut.rounds import (
    FIRST_BAR_MS,
    MAX_BACKLOG,
    SERVES_ANYHOW_MS,
    Follower,
    Phase,
    Rounds,
)
from headrace.pipeline.progress.offsets import by_partition, offset_at

PATIENCE_MS, START_PATIENCE_MS = 5_000, 20_000


class Project:
    """A log of topics with one partition, and followers that are moved by hand."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.rounds = Rounds(PATIENCE_MS, START_PATIENCE_MS, lambda follower: None)
        self.log: dict[str, int] = {}
        self.read: dict[Follower, dict[str, int]] = {}

    def follower(self, name: str, *topics: str, read: int = 0) -> Follower:
        made = self.rounds.add((name, 1), topics.__contains__, self.now_ms)
        self.read[made] = dict.fromkeys(topics, read)
        for topic in topics:
            self.log.setdefault(topic, read)
        return made

    def offsets(self, follower: Follower) -> dict:
        return self.offsets_of(self.read[follower])

    def offsets_of(self, read: dict[str, int]) -> dict:
        return {topic: {0: offset} for topic, offset in read.items()}

    def arrives(self, *followers: Follower) -> None:
        for each in followers:
            if each.phase is Phase.ALONE and each.cut:  # its thread has to end its micro-batch first
                self.commits(each)
            ends = {topic: {0: self.log[topic]} for topic in self.read[each]}
            self.rounds.arrive(each, self.offsets(each), ends, self.now_ms)

    def is_ready(self, *followers: Follower) -> None:
        for each in followers:
            self.rounds.ready(each, self.now_ms)

    def commits(self, follower: Follower) -> None:
        """The transaction of a round is over, or that of a follower that is alone."""
        together = follower.round.followers if follower.phase is Phase.COMMITS else (follower,)
        for each in together:
            self.read[each] = {topic: partitions[0] for topic, partitions in each.cut.items()}
        for each in together:
            self.rounds.committed(each, self.now_ms)

    def join(self, *followers: Follower) -> None:
        """Until all are in, and between two rounds."""
        while not all(each.is_in and each.phase is Phase.RESTS for each in followers):
            for each in followers:
                someone_waits = any(other.phase is Phase.WAITS for other in followers)
                if each.phase is Phase.ALONE or (each.phase is Phase.RESTS and someone_waits):
                    self.arrives(each)
            self.is_ready(*followers)
            for each in followers:
                if each.phase in (Phase.COMMITS, Phase.ALONE):
                    self.commits(each)

    def passes(self, ms: int) -> None:
        self.now_ms += ms
        self.rounds.expire(self.now_ms)


@pytest.fixture
def project():
    return Project()


def phases(*followers: Follower) -> list[Phase]:
    return [each.phase for each in followers]


def test_a_follower_without_others_waits_for_nobody(project):
    one, other = project.follower("one", "a"), project.follower("other", "b")
    project.log["a"] = 3 * MAX_BACKLOG
    project.arrives(one)
    assert one.phase is Phase.READS
    assert one.cut == {"a": {0: 3 * MAX_BACKLOG}}, "as much as it likes"
    project.is_ready(one)
    assert one.round.followers == (one,)
    assert other.phase is Phase.ALONE


def test_a_round_begins_when_all_have_looked_and_ends_when_all_are_ready(project):
    one, other = project.follower("one", "a"), project.follower("other", "a")
    project.join(one, other)
    project.log["a"] = 7
    project.arrives(one)
    assert one.phase is Phase.WAITS
    project.log["a"] = 9
    project.arrives(other)
    assert phases(one, other) == [Phase.READS] * 2
    assert one.cut == other.cut == {"a": {0: 9}}
    project.is_ready(other)
    assert phases(one, other) == [Phase.READS, Phase.READY]
    project.is_ready(one)
    assert phases(one, other) == [Phase.COMMITS] * 2
    assert one.round is other.round
    assert one.round.followers == (one, other), "by name, as all who lock several views"


def test_one_that_has_nothing_to_read_does_not_wait_for_the_commit(project):
    both, only_b = project.follower("both", "a", "b"), project.follower("only_b", "b")
    project.join(both, only_b)
    project.log["a"] = 1
    project.arrives(both, only_b)
    assert phases(both, only_b) == [Phase.READS, Phase.RESTS]
    project.is_ready(both)
    assert both.phase is Phase.COMMITS


def test_those_that_are_connected_by_another_one_have_one_round(project):
    ab, bc, c = project.follower("ab", "a", "b"), project.follower("bc", "b", "c"), project.follower("c", "c")
    project.join(ab, bc, c)
    project.log.update(a=1, c=1)
    project.arrives(ab, c)
    assert phases(ab, c) == [Phase.WAITS] * 2
    project.arrives(bc)
    assert phases(ab, bc, c) == [Phase.READS] * 3


def test_one_that_fails_leaves_and_the_others_go_on_at_once(project):
    one, other, bad = (project.follower(name, "a") for name in ("one", "other", "bad"))
    project.join(one, other, bad)
    project.log["a"] = 1
    project.arrives(one, other, bad)
    project.is_ready(one, other)
    project.rounds.leave(bad, project.now_ms)
    assert phases(one, other) == [Phase.COMMITS] * 2
    project.commits(one)
    project.log["a"] = 2
    project.arrives(one, other)
    assert phases(one, other) == [Phase.READS] * 2, "nobody waits for it any more"


def test_one_that_hangs_is_put_out_once_and_for_longer_each_time(project):
    one, slow = project.follower("one", "a"), project.follower("slow", "a")
    for times in range(3):
        project.passes(0)
        project.join(one, slow)
        assert slow.is_in, times
        project.log["a"] += 1
        project.arrives(one, slow)
        project.passes(100)
        project.is_ready(one)
        project.passes(PATIENCE_MS - 1)
        assert phases(one, slow) == [Phase.READY, Phase.READS]
        project.passes(1)
        assert phases(one, slow) == [Phase.COMMITS, Phase.ALONE]
        project.commits(one)
        project.commits(slow)  # alone, much later
        bar_ms = FIRST_BAR_MS << times
        project.passes(bar_ms - 1)
        project.arrives(slow)
        assert slow.phase is Phase.ALONE, "it may not join yet"
        project.passes(1)


def test_one_that_does_not_look_any_more_is_put_out(project):
    one, hangs = project.follower("one", "a"), project.follower("hangs", "a")
    project.join(one, hangs)
    project.log["a"] = 1
    project.arrives(one)
    project.passes(PATIENCE_MS)
    assert phases(one, hangs) == [Phase.READS, Phase.ALONE]


def test_one_that_joins_waits_for_the_next_round_and_nobody_waits_for_its_replay(project):
    one = project.follower("one", "a", read=50_000)
    project.join(one)
    new = project.follower("new", "a")
    project.log["a"] = 50_000
    project.arrives(new)
    assert new.phase is Phase.WAITS
    project.log["a"] = 50_001
    project.arrives(one)
    assert phases(one, new) == [Phase.READS, Phase.ALONE], "50,001 offsets are more than a round"
    project.is_ready(one)
    project.commits(one)
    project.read[new]["a"] = 49_000
    project.arrives(new)
    project.log["a"] = 50_010
    project.arrives(one)
    assert new.cut == one.cut == {"a": {0: 50_010}}
    assert not new.has_joined
    project.is_ready(new, one)
    project.commits(new)
    assert new.has_joined


def test_one_that_waits_to_join_goes_on_alone_if_no_round_begins(project):
    one, new = project.follower("one", "a"), project.follower("new", "a")
    project.log["a"] = 1
    project.arrives(one)  # and computes for long, while nobody waits for it who is in
    project.arrives(new)
    project.passes(PATIENCE_MS)
    assert phases(one, new) == [Phase.READS, Phase.ALONE]
    assert new.cut == {"a": {0: 1}}


def test_those_with_a_large_backlog_catch_up_by_themselves(project):
    one, other = project.follower("one", "a"), project.follower("other", "a")
    project.join(one, other)
    project.log["a"] = MAX_BACKLOG
    project.arrives(one, other)
    assert one.cut == other.cut == {"a": {0: MAX_ROUND_OFFSETS}}, "a small backlog is read together"
    project.is_ready(one, other)
    project.commits(one)
    project.log["a"] += 2 * MAX_BACKLOG
    project.arrives(one, other)
    assert phases(one, other) == [Phase.ALONE] * 2
    assert one.cut == {"a": {0: 3 * MAX_BACKLOG}}


def test_versions_that_start_at_the_same_offsets_wait_for_each_other(project):
    first = project.follower("first", "a", read=10)
    project.rounds.expect(("second", 1), {"a": {0: 10}}, 0)
    project.rounds.expect(("elsewhere", 1), {"a": {0: 9}}, 0)
    project.log["a"] = 12
    project.arrives(first)
    project.passes(3 * PATIENCE_MS)
    assert first.phase is Phase.WAITS
    second = project.follower("second", "a", read=10)
    project.arrives(second)
    assert phases(first, second) == [Phase.READS] * 2


@pytest.mark.parametrize("why", ["its start has failed", "it starts for too long"])
def test_nobody_waits_for_ever_for_a_start(project, why):
    first = project.follower("first", "a", read=10)
    project.rounds.expect(("second", 1), {"a": {0: 10}}, 0)
    project.log["a"] = 12
    project.arrives(first)
    if why == "its start has failed":
        project.rounds.forget(("second", 1), 0)
    else:
        project.passes(START_PATIENCE_MS)
    assert first.phase is Phase.READS


def test_nobody_who_is_in_waits_for_a_version_that_starts_again(project):
    first = project.follower("first", "a")
    project.join(first)
    project.rounds.expect(("second", 1), {"a": {0: 0}}, 0)
    project.log["a"] = 1
    project.arrives(first)
    assert first.phase is Phase.READS


def test_while_the_versions_are_stopped_no_round_is_committed(project):
    one, other, third = (project.follower(name, "a") for name in ("one", "other", "third"))
    project.join(one, other, third)
    project.log["a"] = 1
    project.arrives(one, other, third)
    project.is_ready(one)
    project.rounds.pause(0)
    assert one.phase is Phase.ALONE
    project.is_ready(other)
    assert other.phase is Phase.ALONE
    project.arrives(one)
    assert one.cut == {"a": {0: 0}}, "nothing to read any more"
    project.rounds.resume()
    project.arrives(one)
    assert third.phase is Phase.READS
    assert one.phase is Phase.WAITS


def test_a_round_that_commits_is_not_given_up(project):
    one, other = project.follower("one", "a"), project.follower("other", "a")
    project.join(one, other)
    project.log["a"] = 1
    project.arrives(one, other)
    project.is_ready(one, other)
    project.rounds.pause(0)
    assert phases(one, other) == [Phase.COMMITS] * 2


def test_they_look_at_the_log_at_the_longest_of_their_intervals(project):
    quick, slow = project.follower("quick", "a"), project.follower("slow", "a")
    assert project.rounds.interval_ms(slow, 500) == 500
    assert project.rounds.interval_ms(quick, 200) == 200, "nobody is in yet"
    project.join(quick, slow)
    assert project.rounds.interval_ms(quick, 200) == 500
    project.rounds.leave(slow, 0)
    assert project.rounds.interval_ms(quick, 200) == 200


def test_a_new_version_serves_once_it_has_the_offsets_of_the_others(project):
    one, new = project.follower("one", "a"), project.follower("new", "a")
    project.join(one)
    assert project.rounds.may_serve(("a stream", 1), 0)
    assert not project.rounds.may_serve(new.key, 0)
    project.arrives(new)
    assert not project.rounds.may_serve(new.key, 0)
    project.arrives(one)
    assert project.rounds.may_serve(new.key, 0)


def test_a_new_version_that_gets_into_no_round_serves_anyhow(project):
    new = project.follower("new", "a")
    assert not project.rounds.may_serve(new.key, 0)
    assert not project.rounds.may_serve(new.key, SERVES_ANYHOW_MS - 1)
    assert project.rounds.may_serve(new.key, SERVES_ANYHOW_MS)


def test_a_thread_that_did_not_end_does_not_hold_back_its_successor(project):
    old, other = project.follower("one", "a"), project.follower("other", "a")
    project.join(old, other)
    project.log["a"] = 1
    project.arrives(old, other)
    project.is_ready(other)
    new = project.follower("one", "a")
    assert phases(old, other) == [Phase.ALONE, Phase.COMMITS]
    project.rounds.remove(old, 0)
    assert project.rounds.followers[new.key] is new


class AnyOrder(RuleBasedStateMachine):
    """Runs followers in any order, with failures, hangs and stops. Followers in a round have the same offsets."""

    @initialize(topics=st.lists(st.sets(st.sampled_from("abc"), min_size=1), min_size=2, max_size=5))
    def begins(self, topics):
        self.project = Project()
        for number, each in enumerate(topics):
            self.project.follower(f"f{number}", *sorted(each))

    @property
    def followers(self) -> list[Follower]:
        return list(self.project.rounds.followers.values())

    def _of(self, number: int, *phases: Phase) -> Follower | None:
        found = [each for each in self.followers if each.phase in phases]
        return found[number % len(found)] if found else None

    @rule(topic=st.sampled_from("abc"), count=st.sampled_from((1, 7, MAX_ROUND_OFFSETS, 2 * MAX_BACKLOG)))
    def records_arrive(self, topic, count):
        self.project.log[topic] = self.project.log.get(topic, 0) + count

    @rule(number=st.integers(0, 4))
    def looks(self, number):
        follower = self._of(number, Phase.ALONE, Phase.RESTS)
        if follower is not None:
            self.project.arrives(follower)

    @rule()
    def all_look(self):
        for each in self.followers:
            if each.phase in (Phase.ALONE, Phase.RESTS):
                self.project.arrives(each)

    @rule(number=st.integers(0, 4))
    def has_computed(self, number):
        follower = self._of(number, Phase.READS)
        if follower is not None:
            self.project.is_ready(follower)

    @rule(number=st.integers(0, 4))
    def transaction_ends(self, number):
        follower = self._of(number, Phase.COMMITS)
        if follower is not None:
            self.project.commits(follower)

    @rule(number=st.integers(0, 4))
    def transaction_fails(self, number):
        follower = self._of(number, Phase.COMMITS)
        for each in () if follower is None else follower.round.followers:
            self.project.rounds.leave(each, self.project.now_ms)

    @rule(number=st.integers(0, 4))
    def fails(self, number):
        follower = self._of(number, Phase.READS, Phase.RESTS)
        if follower is not None:
            self.project.rounds.leave(follower, self.project.now_ms)

    @rule(ms=st.sampled_from((10, PATIENCE_MS, FIRST_BAR_MS)))
    def time_passes(self, ms):
        self.project.passes(ms)

    @rule(number=st.integers(0, 4))
    def starts_again(self, number):
        follower = self._of(number, Phase.ALONE, Phase.RESTS, Phase.READS)
        if follower is not None:
            read = self.project.read.pop(follower)
            self.project.rounds.remove(follower, self.project.now_ms)
            self.project.rounds.expect(follower.key, self.project.offsets_of(read), self.project.now_ms)
            self.project.read[self.project.follower(follower.key[0], *read)] = read

    @rule()
    @precondition(lambda self: hasattr(self, "project"))
    def the_project_stops_for_a_moment(self):
        self.project.rounds.pause(self.project.now_ms)
        self.project.rounds.resume()

    @invariant()
    def those_that_are_in_are_at_the_same_offsets(self):
        joined = [each for each in self.followers if each.has_joined] if hasattr(self, "project") else []
        for one in joined:
            for other in joined:
                ours, theirs = self.project.read[one], self.project.read[other]
                assert all(ours[topic] == theirs[topic] for topic in ours.keys() & theirs.keys()), (one.key, other.key)

    @invariant()
    def a_cut_never_goes_back_and_never_beyond_the_log(self):
        for each in self.followers if hasattr(self, "project") else ():
            if each.phase is Phase.READS:
                for partition, offset in by_partition(each.cut).items():
                    assert offset_at(self.project.offsets(each), partition) <= offset
                    assert offset <= self.project.log[partition.topic]

    def teardown(self):
        """Whatever happened: if nothing fails any more, all are in before long."""
        if not hasattr(self, "project"):
            return
        for _ in range(40):
            for each in self.followers:
                each.barred_until_ms = 0
            self.all_look()
            self.project.is_ready(*self.followers)
            for each in self.followers:
                if each.phase is Phase.COMMITS:
                    self.project.commits(each)
            self.project.passes(10)
        assert all(each.is_in for each in self.followers), [(each.key, each.phase) for each in self.followers]


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
