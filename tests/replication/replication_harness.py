"""Runs three replicas of a partition, a znode and a controller, as values only: no bytes, no network, no time.

Everything that can happen is a method, and happens when the test calls it. A message is sent, and its answer is given
later or never. An election is written, and each replica learns of it in its own call. What must hold at every moment is
in :meth:`ReplicationHarness.check`. Brokers that die keep their log (as after ``kill -9``) and the high watermark that
was last on disk.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from memory_log import MemoryLog, Record, ReplicaLog

from headrace.coordination.znodes import PartitionState
from headrace.protocol.errors import KafkaError, NotEnoughReplicasAfterAppend
from headrace.replication.epoch_ends import EpochEnd
from headrace.replication.follower import (
    AdvanceOffsets,
    EpochEndRequest,
    FetchResult,
    FollowerFetch,
    LogAction,
    LogRangeRequest,
    PartitionFollower,
    TruncateFully,
    TruncateTo,
    Truncation,
)
from headrace.replication.leader import IsrChange, LeaderSettings, PartitionLeader


@dataclass
class Replica:
    broker_id: int
    log: ReplicaLog
    is_up: bool = True
    role: PartitionLeader | PartitionFollower | None = None
    #: The leader epoch of the newest request of the controller.
    known_epoch: int = -1
    checkpoint: int = 0
    #: The leader's answer that the follower has not received yet.
    answer: Callable[[], None] | None = None
    #: The response to a change of the ISR that the leader has not received yet.
    isr_answer: Callable[[], None] | None = None
    unacknowledged: list[int] = field(default_factory=list)


class ReplicationHarness:
    def __init__(
        self,
        replica_count: int = 3,
        *,
        truncation: Truncation = Truncation.BY_EPOCH,
        min_insync_replicas: int = 1,
        make_log: Callable[[int], ReplicaLog] = lambda _: MemoryLog(),
    ) -> None:
        self.truncation = truncation
        self.settings = LeaderSettings(min_insync_replicas, lag_time_max_ms=100)
        self.now_ms = 0
        self.replicas = [Replica(broker_id, make_log(broker_id)) for broker_id in range(replica_count)]
        self.state = PartitionState(-1, 0, tuple(range(replica_count)), 1)
        self.version = 0
        self.led: dict[int, int] = {}
        self.acknowledged: dict[int, Record] = {}
        self.seen: dict[int, Record] = {}
        self._watermarks: dict[PartitionLeader | PartitionFollower, int] = {}
        self._value_count = 0

    # Who is what

    def leaders(self) -> list[Replica]:
        """The replicas that are in the role of a leader."""
        return [one for one in self.replicas if one.is_up and isinstance(one.role, PartitionLeader)]

    def leader(self, broker_id: int) -> PartitionLeader:
        role = self.replicas[broker_id].role
        assert isinstance(role, PartitionLeader)
        return role

    # The controller

    def elect(self, leader: int, gone: frozenset[int] = frozenset()) -> bool:
        """Elects a leader from the ISR without the brokers ``gone``, which the controller takes for dead."""
        isr = tuple(one for one in self.state.isr if one not in gone)
        if leader not in isr:
            return False
        self.state = self.state._replace(leader=leader, leader_epoch=self.state.leader_epoch + 1, isr=isr)
        self.version += 1
        return True

    def tell(self, broker_id: int) -> None:
        """The controller's request reaches a broker."""
        replica, state = self.replicas[broker_id], self.state
        if not replica.is_up or state.leader < 0 or state.leader_epoch <= replica.known_epoch:
            return
        if state.leader == broker_id:
            if state.leader_epoch in self.led:
                return  # it has died since: the controller will notice, and elect again
            self._become_leader(replica)
        else:
            self._become_follower(replica)
        replica.known_epoch = state.leader_epoch

    def _become_leader(self, replica: Replica) -> None:
        state, log, others = self.state, replica.log, range(len(self.replicas))
        self.led[state.leader_epoch] = replica.broker_id
        log.begin_epoch(state.leader_epoch)
        replica.answer = replica.isr_answer = None
        if isinstance(replica.role, PartitionLeader):
            replica.role.begin_next_epoch(state, self.version, others, self.now_ms)
        else:
            replica.role = PartitionLeader(
                replica.broker_id,
                state,
                self.version,
                others,
                next_offset=log.next_offset,
                high_watermark=log.high_watermark,
                now_ms=self.now_ms,
                settings=self.settings,
            )
        self._moved(replica)

    def _become_follower(self, replica: Replica) -> None:
        replica.answer = replica.isr_answer = None
        replica.unacknowledged.clear()  # their producers are told that the leader is another
        follower = PartitionFollower(self.state.leader, self.state.leader_epoch, replica.log, self.truncation)
        replica.role = follower
        self._do(replica, follower.first_action(), [])

    # Producers

    def append(self, broker_id: int) -> None:
        """Appends with acks=all to a broker in the role of a leader."""
        replica = self.replicas[broker_id]
        if not replica.is_up or not isinstance(replica.role, PartitionLeader):
            return
        if replica.role.is_under_min_isr:
            return
        self._value_count += 1
        replica.log.append([(replica.role.leader_epoch, f"v{self._value_count}")])
        replica.unacknowledged.append(replica.log.next_offset)
        replica.role.appended(replica.log.next_offset, self.now_ms)
        self._moved(replica)

    def _moved(self, replica: Replica) -> None:
        leader = replica.role
        assert isinstance(leader, PartitionLeader)
        replica.log.high_watermark = leader.high_watermark
        waiting = []
        for end_offset in replica.unacknowledged:
            try:
                if leader.is_acknowledged(end_offset):
                    self.acknowledged[end_offset - 1] = replica.log.records[end_offset - 1]
                else:
                    waiting.append(end_offset)
            except NotEnoughReplicasAfterAppend:
                pass  # its producer is told
        replica.unacknowledged = waiting

    # Followers

    def send(self, broker_id: int) -> None:
        """A follower sends its request, and its leader answers. The follower gets the answer later."""
        replica = self.replicas[broker_id]
        follower = replica.role
        if not replica.is_up or not isinstance(follower, PartitionFollower) or replica.answer is not None:
            return
        ask = follower.next_request()
        asked = self.replicas[follower.leader_id]
        if ask is None or not asked.is_up or not isinstance(asked.role, PartitionLeader):
            return
        try:
            if isinstance(ask, FollowerFetch):
                replica.answer = self._fetch(replica, follower, asked, ask)
                return
            asked.role.check_epoch(ask.leader_epoch)
        except KafkaError as error:
            refusal = error
            replica.answer = lambda: follower.on_error(ask, refusal)
            return
        if isinstance(ask, EpochEndRequest):
            end = EpochEnd(*asked.log.end_offset_for_epoch(ask.epoch))
            replica.answer = lambda: self._do(replica, follower.on_epoch_end(ask, end), [])
        elif isinstance(ask, LogRangeRequest):
            start_offset, end_offset = asked.log.log_start_offset, asked.log.next_offset
            replica.answer = lambda: self._do(replica, follower.on_log_range(ask, start_offset, end_offset), [])

    def _fetch(
        self, replica: Replica, follower: PartitionFollower, asked: Replica, ask: FollowerFetch
    ) -> Callable[[], None]:
        leader, log = asked.role, asked.log
        assert isinstance(leader, PartitionLeader)
        end = EpochEnd(*log.end_offset_for_epoch(ask.last_epoch))
        fetched = leader.fetched(replica.broker_id, ask, end, self.now_ms)
        self._moved(asked)
        if fetched.isr_change is not None:
            self._write(asked, leader, fetched.isr_change)
        # One record at a time: what takes several fetches is what goes wrong.
        records = [] if fetched.diverging else log.records[ask.offset : ask.offset + 1]
        answer = FetchResult(
            leader.high_watermark,
            log.log_start_offset,
            ask.offset + len(records) if records else None,
            fetched.diverging,
        )
        return lambda: self._do(replica, follower.on_fetched(ask, answer), records)

    def receive(self, broker_id: int) -> None:
        replica = self.replicas[broker_id]
        answer, replica.answer = replica.answer, None
        if answer is not None:
            answer()

    def _do(self, replica: Replica, deed: LogAction, records: list[Record]) -> None:
        match deed:
            case TruncateTo(offset):
                replica.log.truncate_to(offset)
            case TruncateFully(_):
                raise AssertionError("no log here begins above 0")
            case AdvanceOffsets(high_watermark, _):
                replica.log.append(records)
                replica.log.high_watermark = high_watermark

    # The ISR

    def shrink_isr(self, broker_id: int) -> None:
        replica = self.replicas[broker_id]
        if replica.is_up and isinstance(replica.role, PartitionLeader):
            change = replica.role.shrink_isr(self.now_ms)
            if change is not None:
                self._write(replica, replica.role, change)

    def _write(self, replica: Replica, leader: PartitionLeader, change: IsrChange) -> None:
        """Changes the znode now, or rejects the change. The leader gets the response later."""
        if change.expected_version != self.version:
            replica.isr_answer = lambda: leader.isr_rejected(change)
            return
        self.state, self.version = change.state, self.version + 1
        version = self.version

        def written() -> None:
            leader.isr_written(change, version, self.now_ms)
            self._moved(replica)

        replica.isr_answer = written

    def hear_of_isr(self, broker_id: int) -> None:
        replica = self.replicas[broker_id]
        answer, replica.isr_answer = replica.isr_answer, None
        if answer is not None:
            answer()

    # Faults

    def crash(self, broker_id: int) -> None:
        replica = self.replicas[broker_id]
        replica.is_up = False
        replica.role = replica.answer = replica.isr_answer = None
        replica.unacknowledged.clear()
        replica.log.high_watermark = min(replica.checkpoint, replica.log.next_offset)

    def restart(self, broker_id: int) -> None:
        self.replicas[broker_id].is_up = True
        self.replicas[broker_id].known_epoch = -1

    def flush_high_watermark(self, broker_id: int) -> None:
        self.replicas[broker_id].checkpoint = self.replicas[broker_id].log.high_watermark

    # Together

    def exchange(self, broker_id: int, times: int = 1) -> None:
        for _ in range(times):
            self.send(broker_id)
            self.receive(broker_id)

    def bounce(self, broker_id: int) -> None:
        """Restarts a broker before the controller notices."""
        self.crash(broker_id)
        self.restart(broker_id)
        self.tell(broker_id)

    def settle(self) -> None:
        """Sends every request and answer until nothing changes any more."""
        for replica in self.replicas:
            self.tell(replica.broker_id)
        for _ in range(2 * max(one.log.next_offset for one in self.replicas) + 10):
            for replica in self.replicas:
                self.exchange(replica.broker_id)
                self.hear_of_isr(replica.broker_id)

    # What must hold

    def check(self) -> None:
        self._check_watermarks()
        for replica in self.leaders():
            self._check_leader(replica)
        for offset, record in self.acknowledged.items():
            for broker_id in self.state.isr:
                records = self.replicas[broker_id].log.records
                assert records[offset : offset + 1] == [record], f"{broker_id} has lost {record} at {offset}"

    def _check_watermarks(self) -> None:
        for replica in self.replicas:
            if replica.role is None:
                continue
            log = replica.log
            assert log.log_start_offset <= log.high_watermark <= log.next_offset
            if isinstance(replica.role, PartitionLeader):
                before = self._watermarks.get(replica.role, 0)
                assert log.high_watermark >= before, f"the high watermark of {replica.broker_id} has gone back"
                self._watermarks[replica.role] = log.high_watermark
            for offset in range(log.high_watermark):
                record = self.seen.setdefault(offset, log.records[offset])
                assert log.records[offset] == record, f"{replica.broker_id} shows {log.records[offset]}, not {record}"

    def _check_leader(self, replica: Replica) -> None:
        leader = replica.role
        assert isinstance(leader, PartitionLeader)
        if leader.leader_epoch != self.state.leader_epoch:
            return
        committed = replica.log.records[: leader.high_watermark]
        for broker_id in self.state.isr:
            records = self.replicas[broker_id].log.records
            assert records[: len(committed)] == committed, f"{broker_id} is in the ISR without all that is committed"

    def check_one_log(self) -> None:
        """Starts all brokers again, and checks that their logs are equal."""
        for replica in self.replicas:
            if not replica.is_up:
                self.restart(replica.broker_id)
        assert self.elect(self.state.isr[0])
        self.settle()
        self.check()
        (first, *others), state = self.replicas, self.state
        for other in others:
            assert other.log.records == first.log.records
            assert _epochs_with_records(other.log) == _epochs_with_records(first.log)
        assert {one.log.high_watermark for one in self.replicas} == {first.log.next_offset}
        assert sorted(state.isr) == [one.broker_id for one in self.replicas]


def _epochs_with_records(log: ReplicaLog) -> list[tuple[int, int]]:
    return [entry for entry in log.epochs if entry[1] < log.next_offset]


def _restart_one(harness: ReplicationHarness, chance: random.Random) -> None:
    down = [replica.broker_id for replica in harness.replicas if not replica.is_up]
    if down:
        harness.restart(chance.choice(down))


def walk(harness: ReplicationHarness, seed: int, steps: int = 150) -> None:
    """Runs random events. Checks all rules after each step and at the end.

    :raises AssertionError: if a rule does not hold.
    """
    chance = random.Random(seed)
    brokers = range(len(harness.replicas))
    harness.elect(0)
    for broker_id in brokers:
        harness.tell(broker_id)
    one = lambda: chance.choice(brokers)  # noqa: E731
    actions: list[tuple[int, Callable[[], object]]] = [
        (12, lambda: [harness.append(leader.broker_id) for leader in harness.leaders()]),
        (20, lambda: harness.exchange(one(), chance.randint(1, 4))),
        (6, lambda: harness.send(one())),
        (6, lambda: harness.receive(one())),
        (8, lambda: harness.hear_of_isr(one())),
        (3, lambda: harness.shrink_isr(one())),
        (3, lambda: setattr(harness, "now_ms", harness.now_ms + chance.choice((10, 60, 101)))),
        (3, lambda: harness.flush_high_watermark(one())),
        (4, lambda: harness.elect(one(), frozenset(chance.sample(brokers, chance.randint(0, len(brokers) - 1))))),
        (10, lambda: harness.tell(one())),
        (2, lambda: harness.crash(one())),
        (4, lambda: _restart_one(harness, chance)),
        (2, lambda: harness.bounce(one())),
    ]
    weights = [weight for weight, _ in actions]
    for _, action in chance.choices(actions, weights, k=steps):
        action()
        harness.check()
    harness.check_one_log()
