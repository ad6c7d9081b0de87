"""Transactions whose coordinator or whose partition leaders are killed: each number is committed once, or not at all.

A client reads numbers from one topic and writes each number to two partitions of another, with its offset, in
transactions. It aborts some of them. A read_committed consumer must get each number exactly once from both partitions.
"""

import threading
from contextlib import suppress

import pytest
from cluster_scenario_harness import PATIENCE_S, ClusterScenarioHarness, as_options, coordinator_of, until
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import ConfigResource

import headrace
from headrace.client.errors import HeadraceError
from headrace.client.types import TopicPartition as OurPartition
from headrace.testing.cluster_process import ClusterProcess

pytestmark = pytest.mark.xdist_group("cluster")

QUICK = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "socket.timeout.ms": 3_000,
    "log_level": 0,
}
#: How many numbers go in a transaction at most; each how-manieth is aborted first.
BATCH, ABORT_EVERY = 20, 4
NUMBERS = 600


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    settings = {
        "offsets.topic.num.partitions": 3,
        "transaction.state.log.num.partitions": 4,  # else a name may have one broker for both, whatever it is
        "group.initial.rebalance.delay.ms": 0,
    }
    with ClusterProcess(tmp_path_factory.mktemp("cluster"), *as_options(settings), session_timeout_ms=2_000) as made:
        for of_transactions in (False, True):
            coordinator_of(made, "anybody", of_transactions=of_transactions)  # makes the topics
        yield made


@pytest.fixture
def harness(cluster, request):
    made = ClusterScenarioHarness(cluster, request.node.name.replace("[", "-").rstrip("]"), partitions=2)
    made.create(f"{made.topic}-in")
    made.wait_until_in_sync()
    yield made
    made.mend("__consumer_offsets", "__transaction_state")


def _name_with_two_coordinators(harness):
    """As a group it belongs to another broker than as a transactional id."""
    names = (f"mover-{harness.topic}-{number}" for number in range(100))
    return next(
        name
        for name in names
        if coordinator_of(harness.cluster, name) != coordinator_of(harness.cluster, name, of_transactions=True)
    )


class Mover:
    """In a thread of its own: begins anew, with a new producer, whenever something is not to be mended otherwise."""

    def __init__(self, harness, make_hands, count):
        self._harness = harness
        self._make_hands = make_hands
        self._count = count
        self.name = _name_with_two_coordinators(harness)
        self.moved = 0
        self.transactions = self.starts = 0
        self.failure = None
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, kind, *_):
        self._is_stopping = kind is not None
        self._thread.join(2 * PATIENCE_S)
        assert kind is not None or not self._thread.is_alive(), f"moved {self.moved} of {self._count}"
        assert self.failure is None, self.failure

    def reaches(self, share):
        until(lambda: self.moved >= share * self._count or self.failure, f"{share} of all is moved")
        assert self.failure is None, self.failure

    def _run(self):
        try:
            while self.moved < self._count and not self._is_stopping:
                self._live()
        except Exception as error:  # noqa: BLE001  told to the test
            self.failure = error

    def _live(self):
        self.starts += 1
        with suppress(KafkaException, HeadraceError), self._make_hands(self._harness, self.name) as hands:
            # Whatever goes wrong: a new one finds out how far this one came.
            self.moved = hands.position()
            while self.moved < self._count and not self._is_stopping:
                self._move(hands)

    def _move(self, hands):
        values = hands.read()
        if not values:
            return
        self.transactions += 1
        if self.transactions % ABORT_EVERY == 0:
            hands.write([b"-1"], None)
        hands.write(values, self.moved + len(values))
        self.moved += len(values)


class LibrdkafkaHands:
    """Adds partitions to its transactions by itself."""

    #: A producer of librdkafka 2.x that has a dead broker in its cache as a group's coordinator waits for it for good.
    survives_its_group_coordinator = False

    def __init__(self, harness, name):
        servers = {"bootstrap.servers": harness.cluster.bootstrap_servers, **QUICK}
        self._topic = harness.topic
        self._source = TopicPartition(f"{harness.topic}-in", 0)
        self._producer = Producer({**servers, "transactional.id": name, "linger.ms": 1})
        self._consumer = Consumer(
            {**servers, "group.id": name, "enable.auto.commit": False, "isolation.level": "read_committed"}
        )

    def __enter__(self):
        self._producer.init_transactions(PATIENCE_S)
        return self

    def __exit__(self, *_):
        self._consumer.close()
        self._producer.purge()

    def position(self):
        (committed,) = self._consumer.committed([self._source], timeout=PATIENCE_S)
        position = max(0, committed.offset)
        self._consumer.assign([TopicPartition(self._source.topic, 0, position)])
        return position

    def read(self):
        return [each.value() for each in self._consumer.consume(BATCH, 0.2) if each.error() is None]

    def write(self, values, end_offset):
        """A transaction; without an offset it is aborted."""
        producer = self._producer
        producer.begin_transaction()
        for value in values:
            for partition in (0, 1):
                producer.produce(self._topic, value, partition=partition)
        if end_offset is None:
            _patiently(lambda: producer.abort_transaction(PATIENCE_S))
            return
        end = TopicPartition(self._source.topic, 0, end_offset)
        group = self._consumer.consumer_group_metadata()
        _patiently(lambda: producer.send_offsets_to_transaction([end], group, PATIENCE_S))
        _patiently(lambda: producer.commit_transaction(PATIENCE_S))


def _patiently(ask):
    while True:
        try:
            return ask()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


class OurHands:
    """Writes add their partitions, and each end raises the epoch (KIP-890)."""

    survives_its_group_coordinator = True

    def __init__(self, harness, name):
        servers = {
            "bootstrap_servers": harness.cluster.bootstrap_servers,
            "request_timeout_ms": 3_000,
            "socket_connection_setup_timeout_ms": 3_000,
        }
        self._name = name
        self._topic = harness.topic
        self._source = OurPartition(f"{harness.topic}-in", 0)
        self._producer = headrace.Producer(transactional_id=name, linger_ms=1, **servers)
        self._consumer = headrace.Consumer(group_id=name, enable_auto_commit=False, **servers)

    def __enter__(self):
        self._consumer.start()
        self._producer.init_transactions()
        return self

    def __exit__(self, *_):
        with suppress(HeadraceError):
            self._consumer.close()
        with suppress(HeadraceError):
            self._producer.close(0)

    def position(self):
        self._consumer.assign([self._source])
        committed = self._consumer.committed(self._source).get(self._source)
        position = 0 if committed is None else committed.offset
        self._consumer.seek(self._source, position)
        return position

    def read(self):
        return [record.value for record in self._consumer.poll(200, BATCH)]

    def write(self, values, end_offset):
        producer = self._producer
        producer.begin_transaction()
        for value in values:
            for partition in (0, 1):
                producer.send(self._topic, value, partition=partition)
        if end_offset is None:
            producer.abort_transaction()
            return
        producer.send_offsets_to_transaction({self._source: end_offset}, self._name)
        producer.commit_transaction()


def fill(harness, count):
    producer = Producer({"bootstrap.servers": harness.cluster.bootstrap_servers, "acks": "all", **QUICK})
    for number in range(count):
        producer.produce(f"{harness.topic}-in", str(number).encode())
    assert producer.flush(PATIENCE_S) == 0


def committed(harness, partition, count):
    """The numbers that a reader of what is committed gets, up to the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": harness.cluster.bootstrap_servers,
            "group.id": "never-committed",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            **QUICK,
        }
    )
    try:
        consumer.assign([TopicPartition(harness.topic, partition, 0)])
        found = []

        def is_at_end():
            for message in consumer.consume(1_000, 0.5):
                if message.error() is None:
                    found.append(int(message.value()))
            return len(found) >= count

        until(is_at_end, f"{count} committed numbers in partition {partition}")
        found += [int(each.value()) for each in consumer.consume(1_000, 1.0) if each.error() is None]
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize(
    ("how", "hands"),
    [("kill", LibrdkafkaHands), ("kill", OurHands), ("pause", OurHands), ("stop", LibrdkafkaHands)],
)
def test_each_number_arrives_once(harness, cluster, how, hands):
    fill(harness, NUMBERS)
    with Mover(harness, hands, NUMBERS) as mover:
        victims = {
            0.1: lambda: coordinator_of(cluster, mover.name, of_transactions=True),
            0.4: lambda: harness.partition(0).leader,
            0.7: lambda: coordinator_of(cluster, mover.name),
        }
        for share, victim in victims.items():
            mover.reaches(share)
            number = victim()
            if not hands.survives_its_group_coordinator and number == coordinator_of(cluster, mover.name):
                continue
            getattr(cluster, how)(number)
            until(lambda number=number: number not in harness.alive(), "it is known to be away")
            mover.reaches(share + 0.1)
            if how == "pause":
                cluster.resume(number)
            else:
                cluster.restart(number)
            for topic in (harness.topic, "__transaction_state", "__consumer_offsets"):
                until(lambda topic=topic: harness.in_sync(topic), f"all replicas of {topic} in sync again")
    for partition in (0, 1):
        assert committed(harness, partition, NUMBERS) == list(range(NUMBERS))


def test_all_brokers_die_at_once(harness, cluster):
    fill(harness, NUMBERS)
    with Mover(harness, OurHands, NUMBERS) as mover:
        for share in (0.2, 0.6):
            mover.reaches(share)
            for number in cluster.brokers:
                cluster.kill(number)
            for number in cluster.brokers:
                cluster.restart(number)
    for partition in (0, 1):
        assert committed(harness, partition, NUMBERS) == list(range(NUMBERS))


def test_what_coordinators_decide_is_on_two_brokers_at_least(harness):
    resource = ConfigResource(ConfigResource.Type.TOPIC, "__transaction_state")
    (found,) = harness.admin.describe_configs([resource]).values()
    assert found.result()["min.insync.replicas"].value == "2"
    assert len(harness.partition(0, "__transaction_state").replicas) == 3
