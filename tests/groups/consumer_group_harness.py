"""Runs a shard with groups of the consumer protocol: topics and time that the test changes, and clients.

A client behaves like a real one: it gives up partitions before it takes others, and its next heartbeat says which
partitions it owns. ``harness.events`` has all events in order: ``"a has t0 t1 at 2"``, ``"b revokes t1"``.
"""

from itertools import count
from uuid import UUID

from group_harness import ListJournal

from headrace.groups.consumer.heartbeat import ConsumerHeartbeatRequest
from headrace.groups.context import GroupContext, KnownTopic
from headrace.groups.shard import GroupShard
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.internal_records import InternalTopic, decode
from headrace.runtime.timer import Timer
from headrace.testing import ManualClock

NONE = ErrorCode.none
SESSION_MS = 45_000
REBALANCE_MS = 60_000
INTERVAL_MS = 1_000


class Settings:
    """Kafka's defaults, and the settings of a test."""

    def __init__(self, **changes):
        self.values = {
            "group.initial.rebalance.delay.ms": 0,
            "group.min.session.timeout.ms": 6_000,
            "group.max.session.timeout.ms": 1_800_000,
            "group.max.size": 2**31 - 1,
            "group.consumer.assignors": ("uniform", "range"),
            "group.consumer.heartbeat.interval.ms": 5_000,
            "group.consumer.session.timeout.ms": SESSION_MS,
            "group.consumer.max.size": 2**31 - 1,
            "group.consumer.migration.policy": "bidirectional",
            "group.consumer.assignment.interval.ms": 0,
            "offsets.retention.minutes": 10_080,
            **{name.replace("_", "."): value for name, value in changes.items()},
        }

    def int(self, name):
        return self.values[name]

    def str(self, name):
        return self.values[name]

    def list(self, name):
        return self.values[name]


class Topics:
    """The topics that exist. Ids are numbered in the order in which topics are added."""

    def __init__(self, **partition_counts):
        self.version = 0
        self._topics = {}
        self._ids = count(1)
        for name, partition_count in partition_counts.items():
            self.put(name, partition_count)

    def put(self, name, partition_count):
        known = self._topics.get(name)
        topic_id = known.topic_id if known is not None else UUID(int=next(self._ids))
        self._topics[name] = KnownTopic(name, topic_id, partition_count, (frozenset(),) * partition_count)
        self.version += 1

    def delete(self, name):
        del self._topics[name]
        self.version += 1

    def topic(self, name):
        return self._topics.get(name)

    def topic_by_id(self, topic_id):
        return next((topic for topic in self._topics.values() if topic.topic_id == topic_id), None)

    def all_topics(self):
        return list(self._topics.values())


class ConsumerGroupHarness:
    def __init__(self, *, topics=None, batches=(), clock=None, settings=None, **changes):
        self.clock = clock or ManualClock()
        self.timer = Timer(self.clock)
        self.topics = topics or Topics(t=4)
        self.settings = settings or Settings(**changes)
        self.group_configs = {}
        self.context = GroupContext(self.clock, self.timer, self.settings, self.topics, lambda _: self.group_configs)
        self.journal = ListJournal(batches)
        self.shard = GroupShard(self.context, self.journal)
        self.clients = {}
        self.events = []
        for _ in self.shard.load():
            pass

    def reloaded(self):
        """Another coordinator that has loaded the same log, with the same clients."""
        other = ConsumerGroupHarness(
            topics=self.topics, batches=self.journal.written, clock=self.clock, settings=self.settings
        )
        for client in self.clients.values():
            other.clients[client.name] = client
            client.harness = other
        return other

    def advance(self, by_ms):
        """Moves the clock, and stops at each moment at which a timer is due."""
        end_ms = self.clock.monotonic_ms() + by_ms
        while (due_ms := self.timer.next_due_ms()) is not None and due_ms <= end_ms:
            self.clock.advance(max(0, due_ms - self.clock.monotonic_ms()))
            self.timer.advance()
        self.clock.advance(end_ms - self.clock.monotonic_ms())

    @property
    def group(self):
        return self.shard.groups.get("g")

    @property
    def state(self):
        return self.group.state_name

    @property
    def epochs(self):
        """The group epoch, and the epoch of the target assignment."""
        return self.group.metadata.epoch, self.group.metadata.target_epoch

    def client(self, name, **fields):
        client = self.clients[name] = Client(self, name, **fields)
        return client

    def join(self, *names, **fields):
        """Makes clients that join in this order. Returns a list of them, or the only one."""
        joined = [self.client(name, **fields).joins() for name in names]
        return joined[0] if len(names) == 1 else joined

    def settles(self, rounds=20):
        """All members send heartbeats until nothing changes any more."""
        for _ in range(rounds):
            before = len(self.journal.written)
            for client in self.clients.values():
                if client.is_in:
                    client.beats()
            if self.state == "Stable" and len(self.journal.written) == before:
                return self
        raise AssertionError(f"not settled: {self.state}, {self.group.metadata.members}")

    def noted(self):
        events, self.events = self.events, []
        return events

    @staticmethod
    def name_of(member_id):
        """The client's name in a member id, for clients of the classic protocol with names of one letter."""
        return member_id[:1]

    def records(self):
        """All records that were written, by type and value or None."""
        decoded = [
            decode(InternalTopic.CONSUMER_OFFSETS, key, value)
            for _, batch in self.journal.written
            for key, value in batch
        ]
        return [(record.type.name.removeprefix("CONSUMER_GROUP_"), record.value is not None) for record in decoded]

    def show(self, assignment):
        return sorted(
            f"{self.topics.topic_by_id(topic).name if self.topics.topic_by_id(topic) else topic.int}{partition}"
            for topic, partitions in assignment.items()
            for partition in partitions
        )


class Client:
    def __init__(self, harness, name, *, topics=("t",), regex=None, instance_id=None, assignor=None, **_):
        self.harness = harness
        self.name = name
        self.member_id = name
        self.topics = topics
        self.regex = regex
        self.instance_id = instance_id
        self.assignor = assignor
        self.epoch = 0
        self.owned = {}
        self.is_in = False

    def beat(self, **fields):
        """Sends one heartbeat with these fields. Returns the response."""
        fields = {"member_id": self.member_id, "epoch": self.epoch, "instance_id": self.instance_id, **fields}
        beat = ConsumerHeartbeatRequest(client_id=self.name, client_host="/127.0.0.1", **fields)
        beat.check(("uniform", "range"), needs_member_id=True)
        return self.harness.shard.consumer_heartbeat("g", beat)

    def joins(self, **fields):
        self.epoch, self.owned = 0, {}
        return self._say(**self._all(), **fields)

    def _all(self):
        return {
            "rebalance_timeout_ms": REBALANCE_MS,
            "topic_names": None if self.topics is None else frozenset(self.topics),
            "topic_regex": self.regex,
            "server_assignor": self.assignor,
            "owned": self.owned,
        }

    def subscribes(self, *topics):
        self.topics = topics
        return self._say(topic_names=frozenset(topics))

    def asks_again(self):
        """Sends all fields, as a client does after a lost response."""
        return self._say(**self._all())

    def beats(self, **fields):
        """Sends a heartbeat and acts on the response. Gives up revoked partitions; the next heartbeat says so."""
        return self._say(**fields)

    def _say(self, **fields):
        try:
            answer = self.beat(**fields)
        except KafkaError as error:
            self.is_in = False
            self.owned = {}  # a refused member gives up all its partitions
            self.harness.events.append(f"{self.name}: {error.code.name}")
            return self
        self.is_in, self.epoch = True, answer.epoch
        if answer.assignment is not None:
            self._take(answer.assignment)
        return self

    def _take(self, assignment):
        had = dict(self.owned)
        revoked = {topic: left for topic, mine in had.items() if (left := mine - assignment.get(topic, frozenset()))}
        self.owned = dict(assignment)
        if revoked:
            self.harness.events.append(f"{self.name} revokes {' '.join(self.harness.show(revoked))}")
            self._say(owned=self.owned)
        else:
            self.harness.events.append(f"{self.name} has {' '.join(self.shown) or 'nothing'} at {self.epoch}")
            if had != self.owned:
                self._say(owned=self.owned)

    def leaves(self, epoch=-1):
        self.beat(epoch=epoch)
        self.is_in, self.owned = False, {}
        return self

    @property
    def shown(self):
        return self.harness.show(self.owned)

    @property
    def member(self):
        return self.harness.group.metadata.members[self.member_id]

    def code_of(self, ask, *arguments):
        try:
            ask(*arguments)
        except KafkaError as error:
            return error.code
        return NONE

    def commit(self, epoch=None):
        return self.code_of(
            self.harness.group.check_commit, self.member_id, self.epoch if epoch is None else epoch, self.instance_id
        )

    def fetch(self, epoch=None):
        return self.code_of(self.harness.group.check_fetch, self.member_id, self.epoch if epoch is None else epoch)
