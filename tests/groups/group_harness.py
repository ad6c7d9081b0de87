"""Runs a shard of groups without a broker: time that the test moves, a log in a list, and clients that note responses.

``harness.events`` has all events in order: ``"a joined 1 leading a b"``, ``"b synced part-of-b"``.
"""

from types import SimpleNamespace

from headrace.groups.context import GroupContext
from headrace.groups.group import JoinRequest, LeavingMember, SyncRequest
from headrace.groups.shard import GroupShard
from headrace.protocol.errors import ErrorCode, KafkaError, StorageError
from headrace.protocol.internal_records import InternalTopic, decode
from headrace.protocol.record_body import Record
from headrace.runtime.timer import Timer
from headrace.testing import ManualClock

NONE = ErrorCode.none
DELAY_MS = 3_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000


class Settings:
    """Kafka's defaults, and the settings of a test."""

    def __init__(self, **changes):
        self.values = {
            "group.initial.rebalance.delay.ms": DELAY_MS,
            "group.min.session.timeout.ms": 6_000,
            "group.max.session.timeout.ms": 1_800_000,
            "group.max.size": 2**31 - 1,
            "offsets.retention.minutes": 10_080,
            **{name.replace("_", "."): value for name, value in changes.items()},
        }

    def int(self, name):
        return self.values[name]


class ListJournal:
    """A journal in memory, with the methods that GroupShard uses."""

    index = 0

    def __init__(self, batches=()):
        self.written = list(batches)
        self.is_broken = False

    def write(self, records, *, producer_id=-1, producer_epoch=-1):
        if self.is_broken:
            raise StorageError("the disk is gone")
        self.written.append((producer_id, [tuple(record) for record in records]))

    def batches(self):
        for producer_id, records in self.written:
            header = SimpleNamespace(
                is_control=False, is_transactional=producer_id != -1, producer_id=producer_id, producer_epoch=0
            )
            yield header, [Record(delta, 0, key, value, ()) for delta, (key, value) in enumerate(records)]


class GroupHarness:
    def __init__(self, *, batches=(), **settings):
        self.clock = ManualClock()
        self.timer = Timer(self.clock)
        self.context = GroupContext(self.clock, self.timer, Settings(**settings), SimpleNamespace())
        self.journal = ListJournal(batches)
        self.shard = GroupShard(self.context, self.journal)
        self.clients = {}
        self.events = []
        for _ in self.shard.load():
            pass

    def reloaded(self, **settings):
        """Another coordinator that has loaded the same log, with the same clients."""
        other = GroupHarness(batches=self.journal.written, **settings)
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
        return self.group.state

    def client(self, name, **fields):
        client = self.clients[name] = Client(self, name, **fields)
        return client

    def join(self, *names, **fields):
        """Makes clients that join in this order. Returns a list of them, or the only one."""
        joined = [self.client(name, **fields).joins() for name in names]
        return joined[0] if len(names) == 1 else joined

    def settles(self):
        """Time passes until the first generation is complete, then all sync."""
        self.advance(DELAY_MS)
        self.all_sync()
        return self

    def all_sync(self):
        """All members that have joined send SyncGroup, the leader last."""
        members = sorted(self.clients.values(), key=lambda client: client.leads)
        for client in members:
            if client.is_in and client.generation_id == self.group.generation_id:
                client.syncs()

    def noted(self):
        """The events since the last call."""
        events, self.events = self.events, []
        return events

    @staticmethod
    def name_of(member_id):
        """The client's name or its instance id, with which a member id begins."""
        return member_id[: -len("-01234567-89ab-cdef-0123-456789abcdef")]

    def records(self):
        """All records of groups that were written: id, and value or None."""
        decoded = [
            decode(InternalTopic.CONSUMER_OFFSETS, key, value)
            for _, batch in self.journal.written
            for key, value in batch
        ]
        return [(record.key.group, record.value) for record in decoded]


class Client:
    def __init__(self, harness, name, **fields):
        self.harness = harness
        self.name = name
        self.fields = {
            "protocol_type": "consumer",
            "protocols": (("range", b"by range"),),
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "client_id": name,
            "client_host": "/127.0.0.1",
            **fields,
        }
        self.member_id = ""
        self.generation_id = -1
        self.answers = []
        self.assignment = None
        self.leads = False
        #: Whether a JoinGroup of the client waits for its response.
        self.is_joining = False
        #: The last generation in which the client got its assignment.
        self.synced_generation_id = 0

    @property
    def is_in(self):
        return bool(self.answers) and self.answers[-1].error is NONE

    @property
    def instance_id(self):
        return self.fields.get("instance_id")

    def joins(self, **changes):
        self.fields.update(changes)
        self.is_joining = True
        try:
            self.harness.shard.join("g", JoinRequest(member_id=self.member_id, **self.fields), self._joined)
        except KafkaError as error:
            self.is_joining = False
            self._note(f"may not join: {error.code.name}")
        return self

    def _joined(self, joined):
        self.answers.append(joined)
        self.is_joining = False
        if joined.error is ErrorCode.member_id_required:
            self.member_id = joined.member_id
        if joined.error is not NONE:
            self._note(f"join failed: {joined.error.name}")
            return
        self.member_id, self.generation_id = joined.member_id, joined.generation_id
        self.leads = joined.leader_id == joined.member_id
        of = " ".join(self.harness.name_of(member_id) for member_id, _, _ in joined.members)
        self._note(f"joined {joined.generation_id}" + (f" leading {of}" if self.leads else ""))

    def syncs(self, assignments=None, **fields):
        if assignments is None and self.leads:
            members = self.answers[-1].members
            assignments = {each: f"part-of-{self.harness.name_of(each)}".encode() for each, _, _ in members}
        fields = {"member_id": self.member_id, "generation_id": self.generation_id, **fields}
        try:
            syncing = SyncRequest(assignments=assignments or {}, instance_id=self.instance_id, **fields)
            self.harness.shard.member_group("g").sync(syncing, self._synced)
        except KafkaError as error:
            self._note(f"may not sync: {error.code.name}")
        return self

    def _synced(self, synced):
        if synced.error is NONE:
            self.assignment, self.synced_generation_id = synced.assignment, self.generation_id
        self._note(
            f"synced {synced.assignment.decode()}" if synced.error is NONE else f"sync failed: {synced.error.name}"
        )

    def heartbeat(self):
        return self._code(
            lambda: self.harness.shard.member_group("g").heartbeat(self.member_id, self.generation_id, self.instance_id)
        )

    def heartbeats(self):
        assert self.heartbeat() is NONE

    def leaves(self):
        (code,) = self.harness.shard.member_group("g").leave(
            [LeavingMember(member_id=self.member_id, instance_id=self.instance_id)]
        )
        self._note("left" if code is NONE else f"may not leave: {code.name}")

    def commit(self, **fields):
        return self._code(
            lambda: self.harness.group.check_commit(self.member_id, self.generation_id, self.instance_id, **fields)
        )

    @staticmethod
    def _code(ask):
        try:
            ask()
        except KafkaError as error:
            return error.code
        return NONE

    def _note(self, what):
        self.harness.events.append(f"{self.name} {what}")
