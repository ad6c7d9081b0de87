"""Any order of appends, fetches, crashes, elections and ISR changes on a leader and two followers."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from replication_harness import ReplicationHarness

BROKERS = st.integers(0, 2)


class ReplicasMachine(RuleBasedStateMachine):
    @initialize(min_insync_replicas=st.integers(1, 2))
    def start(self, min_insync_replicas):
        self.harness = ReplicationHarness(min_insync_replicas=min_insync_replicas)
        self.harness.elect(0)
        for broker_id in range(3):
            self.harness.tell(broker_id)

    @rule(count=st.integers(1, 3))
    def append_to_leaders(self, count):
        for replica in self.harness.leaders():
            for _ in range(count):
                self.harness.append(replica.broker_id)

    @rule(broker_id=BROKERS)
    def send(self, broker_id):
        self.harness.send(broker_id)

    @rule(broker_id=BROKERS)
    def receive(self, broker_id):
        self.harness.receive(broker_id)

    @rule(broker_id=BROKERS, times=st.integers(1, 6))
    def exchange(self, broker_id, times):
        self.harness.exchange(broker_id, times)

    @rule(broker_id=BROKERS)
    def flush_high_watermark(self, broker_id):
        self.harness.flush_high_watermark(broker_id)

    @rule(passed_ms=st.sampled_from([10, 60, 101]))
    def time_passes(self, passed_ms):
        self.harness.now_ms += passed_ms

    @rule(broker_id=BROKERS)
    def shrink(self, broker_id):
        self.harness.shrink_isr(broker_id)

    @rule(broker_id=BROKERS)
    def hear_of_isr(self, broker_id):
        self.harness.hear_of_isr(broker_id)

    @rule(leader=BROKERS, gone=st.frozensets(BROKERS, max_size=2))
    def elect(self, leader, gone):
        self.harness.elect(leader, gone)

    @rule(broker_id=BROKERS)
    def tell(self, broker_id):
        self.harness.tell(broker_id)

    @rule(broker_id=BROKERS)
    def crash(self, broker_id):
        self.harness.crash(broker_id)

    @rule(broker_id=BROKERS)
    def bounce(self, broker_id):
        self.harness.bounce(broker_id)

    @rule(broker_id=BROKERS)
    def restart(self, broker_id):
        if not self.harness.replicas[broker_id].is_up:
            self.harness.restart(broker_id)

    @invariant()
    def all_holds(self):
        if hasattr(self, "harness"):
            self.harness.check()

    def teardown(self):
        if hasattr(self, "harness"):
            self.harness.check_one_log()


ReplicasMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
TestReplicas = ReplicasMachine.TestCase
