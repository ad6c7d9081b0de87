"""A process that dies at any moment of a transaction over two partitions with an offset commit.

Each test counts the changes to the disk in a run without a crash: records of the internal topics, markers, batches,
index entries. Then it repeats the run once for each change and dies there, starts again on the files that are left, and
checks: transactions that were answered as committed are visible, and each transaction is visible completely or not at
all.
"""

import pytest
from transaction_coordinator_harness import GROUP, T0, T1, TIMEOUT_MS, TransactionCoordinatorHarness

from headrace.testing.faulty_disk import Crash, FaultyDisk
from headrace.transactions.states import IDLE


class Story:
    """Two transactions, the first always committed; what its client has heard so far."""

    def __init__(self, folder, *, version, commit):
        self.version, self.commit = version, commit
        self.disk = FaultyDisk()
        self.harness = TransactionCoordinatorHarness(folder, self.disk).load()
        self.heard = []

    def run(self):
        harness = self.harness
        producer = harness.start()
        for number, commit in enumerate([True, self.commit]):
            sequence = number if self.version < 2 else 0
            harness.add(producer, T0, version=self.version)
            harness.write(producer, T0, b"%d" % number, sequence)
            harness.add(producer, T1, GROUP, version=self.version)
            harness.write(producer, T1, b"%d" % number, sequence)
            harness.commit_offset(producer, number)
            producer = harness.end(producer, commit=commit, version=self.version)
            self.heard.append(commit)

    def dies_at(self, change):
        self.disk.crash_at(change)
        with pytest.raises(Crash):
            self.run()

    def check(self):
        """After a restart: what is visible now, and once the timeout has settled what was left open."""
        harness = self.harness
        self._check_visible()
        harness.pass_ms(TIMEOUT_MS)
        self._check_visible()
        assert harness.is_all_stable()
        assert all(each.state in IDLE for each in harness.coordinator.transactions())
        assert not harness.groups.shard_for("g").offsets.has_pending("g")

    def _check_visible(self):
        harness = self.harness
        seen = harness.committed(T0)
        promised = [b"%d" % number for number, commit in enumerate(self.heard) if commit]
        possible = [[], [b"0"]] if not self.commit else [[], [b"0"], [b"0", b"1"]]
        assert seen in possible
        assert seen[: len(promised)] == promised
        assert harness.committed(T1) == seen
        assert harness.offset() == (int(seen[-1]) if seen else None)

    def goes_on(self):
        """A producer that starts now writes as if nothing had been."""
        harness = self.harness
        before = harness.committed(T0)
        producer = harness.start()
        harness.add(producer, T0, T1, GROUP, version=self.version)
        for partition in (T0, T1):
            harness.write(producer, partition, b"9")
        harness.commit_offset(producer, 9)
        harness.end(producer, version=self.version)
        assert harness.committed(T0) == harness.committed(T1) == [*before, b"9"]
        assert harness.offset() == 9


def changes_of(folder, **how):
    story = Story(folder, **how)
    before = len(story.disk.changes)
    story.run()
    story.check()
    story.harness.kill()
    return len(story.disk.changes) - before


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_dying_at_each_change(tmp_path, version, commit):
    how = {"version": version, "commit": commit}
    for change in range(1, changes_of(tmp_path / "whole", **how) + 1):
        story = Story(tmp_path / str(change), **how)
        story.dies_at(change)
        story.harness.restart()
        story.check()
        story.goes_on()
        story.harness.kill()


@pytest.mark.parametrize("version", [0, 2])
def test_dying_again_while_it_recovers(tmp_path, version):
    """From the second transaction's Prepare record on, where recovery has the most to write."""
    how = {"version": version, "commit": True}
    total = changes_of(tmp_path / "whole", **how)
    for change in range(total - 8, total + 1):
        for second in range(1, 30):
            story = Story(tmp_path / f"{change}-{second}", **how)
            story.dies_at(change)
            disk = FaultyDisk()
            story.harness.kill()
            disk.crash_at(second)
            try:
                story.harness.restart(disk)
                is_through = True
            except Crash:
                is_through = False
            story.harness.restart()
            story.check()
            story.harness.kill()
            if is_through:
                break
        else:
            pytest.fail("recovery changes the disk more often than was tried")


@pytest.mark.parametrize("version", [0, 2])
def test_dying_while_an_abandoned_transaction_is_aborted(tmp_path, version):
    """By the timeout, and by a newer producer."""
    for way in ("timeout", "newer producer"):
        change = 0
        is_through = False
        while not is_through:
            change += 1
            story = Story(tmp_path / f"{way}-{change}", version=version, commit=False)
            harness = story.harness
            producer = harness.start()
            harness.add(producer, T0, T1, GROUP, version=version)
            for partition in (T0, T1):
                harness.write(producer, partition, b"0")
            harness.commit_offset(producer, 0)
            story.disk.crash_at(change)
            try:
                if way == "timeout":
                    harness.pass_ms(TIMEOUT_MS)
                else:
                    harness.start()
                is_through = True
            except Crash:
                pass
            harness.restart()
            story.check()
            assert (harness.committed(T0), harness.committed(T1), harness.offset()) == ([], [], None)
            story.goes_on()
            harness.kill()
        assert change > 5
