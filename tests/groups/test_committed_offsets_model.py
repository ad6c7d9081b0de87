"""Compares any sequence of commits, transactions and deletions with a simple model: a search through the whole log.

A restart, which has only the log, must find the same offsets.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from offsets_harness import OffsetsHarness

places = st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["t", "u"]), st.integers(0, 1))
producers = st.integers(1, 3)


class Model(RuleBasedStateMachine):
    @initialize()
    def begin(self):
        self.harness = OffsetsHarness()
        #: (place, offset or None, producer or None) in the order of the log, and how transactions ended.
        self.log = []
        self.next_offset = 0

    def _commit(self, place, producer_id):
        group, topic, partition = place
        self.next_offset += 1
        self.harness.commit(self.next_offset, group=group, topic=topic, partition=partition, producer_id=producer_id)
        self.log.append(("commit", place, self.next_offset, producer_id))

    @rule(place=places)
    def commits(self, place):
        self._commit(place, None)

    @rule(place=places, producer_id=producers)
    def commits_within_a_transaction(self, place, producer_id):
        self._commit(place, producer_id)

    @rule(producer_id=producers, committed=st.booleans())
    def ends_a_transaction(self, producer_id, committed):
        self.harness.ends(producer_id, committed=committed)
        self.log.append(("end", None, committed, producer_id))

    @rule(place=places)
    def deletes(self, place):
        group, topic, partition = place
        self.harness.write(self.harness.offsets.delete_records(group, [(topic, partition)]))
        self.log.append(("delete", place, None, None))

    @rule(group=st.sampled_from(["a", "b"]))
    def deletes_a_group(self, group):
        self.harness.write(self.harness.offsets.delete_records(group))
        self.log += [("delete", (group, topic, partition), None, None) for topic in "tu" for partition in (0, 1)]

    def _expected(self, place):
        """The last commit in the log that counts, and whether one is undecided, from the last deletion on."""
        starts = max(
            (at for at, (kind, where, *_) in enumerate(self.log) if kind == "delete" and where == place), default=-1
        )
        found, is_pending = None, False
        for at, (kind, where, offset, producer_id) in enumerate(self.log[starts + 1 :], starts + 1):
            if kind != "commit" or where != place:
                continue
            ends = [end[2] for end in self.log[at:] if end[0] == "end" and end[3] == producer_id]
            if producer_id is None or (ends and ends[0]):
                found = offset
            elif not ends:
                is_pending = True
        return found, is_pending

    @invariant()
    def agrees_before_and_after_a_restart(self):
        for offsets in (self.harness.offsets, self.harness.replayed()):
            for place in [(group, topic, index) for group in "ab" for topic in "tu" for index in (0, 1)]:
                committed = offsets.committed(*place)
                assert (committed and committed.offset, offsets.has_pending(*place)) == self._expected(place)


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
