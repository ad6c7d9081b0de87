"""Consumer groups whose coordinator fails: committed offsets survive, and members keep their partitions."""

import threading

import pytest
from cluster_scenario_harness import PATIENCE_S, ClusterScenarioHarness, Load, as_options, coordinator_of, until
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headrace.testing.cluster_process import ClusterProcess

pytestmark = pytest.mark.xdist_group("cluster")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    settings = {"offsets.topic.num.partitions": 3, "group.initial.rebalance.delay.ms": 0}
    with ClusterProcess(tmp_path_factory.mktemp("cluster"), *as_options(settings), session_timeout_ms=2_000) as made:
        coordinator_of(made, "anybody")  # makes the topic
        yield made


@pytest.fixture
def harness(cluster, request):
    made = ClusterScenarioHarness(cluster, request.node.name.replace("[", "-").rstrip("]"), partitions=3)
    made.wait_until_in_sync()
    yield made
    made.mend("__consumer_offsets")


class Reader:
    """A consumer in a thread of its own that commits what it has read, and notes what it was told."""

    def __init__(self, harness, group, **settings):
        self._topic = harness.topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": harness.cluster.bootstrap_servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "topic.metadata.refresh.fast.interval.ms": 50,
                "log_level": 0,
                **settings,
            }
        )
        self.values = []
        #: The offsets of the last commit that was acknowledged, by partition; how many there were; what went wrong.
        self.committed = {}
        self.commits = 0
        self.assigned = []
        self.failure = None
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._is_stopping.set()
        self._thread.join(PATIENCE_S)
        self._consumer.close()
        assert self.failure is None, self.failure

    def _run(self):
        try:
            self._consumer.subscribe([self._topic], on_assign=lambda _, parts: self.assigned.append(len(parts)))
            while not self._is_stopping.is_set():
                messages = [each for each in self._consumer.consume(200, 0.1) if each.error() is None]
                self.values += [(each.partition(), int(each.value())) for each in messages]
                if messages:
                    self._commit()
        except Exception as error:  # noqa: BLE001  told to the test
            self.failure = error

    def _commit(self):
        try:
            done = self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            kafka_error = error.args[0]
            assert kafka_error.retriable() or kafka_error.code() in _PASSING, kafka_error
            return
        for part in done:
            assert part.error is None
            if part.offset < 0:
                continue  # nothing of it was read yet
            assert part.offset >= self.committed.get(part.partition, 0)
            self.committed[part.partition] = part.offset
        self.commits += 1

    def goes_on(self):
        """Waits for commits that were made from now on."""
        before = self.commits
        until(lambda: self.commits >= before + 3 or self.failure, "the reader commits")
        assert self.failure is None, self.failure


_PASSING = {
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._WAIT_COORD,
    KafkaError._NO_OFFSET,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.STALE_MEMBER_EPOCH,
}


def offsets_of(harness, group):
    """As another client of the group reads them."""
    consumer = Consumer({"bootstrap.servers": harness.cluster.bootstrap_servers, "group.id": group, "log_level": 0})
    try:
        wanted = [TopicPartition(harness.topic, index) for index in range(harness.partitions)]
        return {part.partition: part.offset for part in consumer.committed(wanted, timeout=PATIENCE_S)}
    finally:
        consumer.close()


@pytest.mark.parametrize("how", ["kill", "stop", "pause"])
def test_the_coordinator_goes_under_a_reader_that_commits(harness, cluster, how):
    group = f"readers-{how}"
    with Load(harness, rate=500) as load, Reader(harness, group) as reader:
        reader.goes_on()
        victim = coordinator_of(cluster, group)
        getattr(cluster, how)(victim)
        told = dict(reader.committed)
        until(lambda: victim not in harness.alive(), "it is known to be away")
        reader.goes_on()
        found = offsets_of(harness, group)
        assert all(found[index] >= offset for index, offset in told.items()), (told, found)
        if how == "pause":
            cluster.resume(victim)
        else:
            cluster.restart(victim)
        until(lambda: harness.in_sync("__consumer_offsets"), "all in sync again")
        reader.goes_on()
    load.check()
    assert reader.assigned == [harness.partitions]  # nobody had to join again
    found = offsets_of(harness, group)
    assert all(found[index] >= offset for index, offset in reader.committed.items())
    for index in range(harness.partitions):  # and each record was read once
        values = [value for partition, value in reader.values if partition == index]
        assert len(values) == len(set(values))
        assert values == load.acknowledged[index][: len(values)]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_two_share_a_topic_through_the_death_of_their_coordinator(harness, cluster, protocol):
    group = f"sharers-{protocol}"
    settings = {"group.protocol": protocol}
    with Load(harness, rate=500) as load, Reader(harness, group, **settings) as first:
        first.goes_on()
        with Reader(harness, group, **settings) as second:
            second.goes_on()
            first.goes_on()
            cluster.kill(coordinator_of(cluster, group))
            first.goes_on()
            second.goes_on()
        first.goes_on()  # alone again
    load.check()
    read = {pair for reader in (first, second) for pair in reader.values}
    for index, offset in offsets_of(harness, group).items():  # what is committed was read by one of them
        assert {(index, value) for value in load.acknowledged[index][:offset]} <= read
