"""Puts a load on a cluster that loses brokers: keeps what was acknowledged, and compares it with the log at the end."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import defaultdict

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace import Admin
from headrace import Producer as OurProducer
from headrace.protocol.api import Api
from headrace.protocol.records import Codec, iter_headers
from headrace.testing.raw_client import RawClient

PATIENCE_S = 40.0
_PASSING = {KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT}


def until(condition, what, timeout_s=PATIENCE_S, *, why=lambda: ""):
    """Waits until a condition is true; returns the condition's value.

    :param why: what to say of it if it is not.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"not in {timeout_s} s: {what} {why()}"
        time.sleep(0.02)


def zookeeper_shell(address, *command):
    """Returns the output of ``headrace zookeeper-shell``."""
    code = "from headrace.tools.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "zookeeper-shell", address, *command], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def as_options(settings):
    """For ``headrace start``."""
    return [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]


class ClusterScenarioHarness:
    """A topic with three replicas, written with the configuration that loses nothing."""

    def __init__(self, cluster, topic="t", partitions=6):
        self.topic = topic
        self.partitions = partitions
        self.moved_to(cluster)
        self.create(topic, partitions)

    def moved_to(self, cluster):
        """The cluster has other addresses now."""
        self.cluster = cluster
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
        self.admin = AdminClient(settings)
        self._asker = AdminClient({**settings, "socket.timeout.ms": 2_000})

    def create(self, topic, partitions=1, factor=3, **configs):
        settings = {"min.insync.replicas": "2", **{name.replace("_", "."): value for name, value in configs.items()}}
        new = NewTopic(topic, partitions, factor, config=settings)
        until(lambda: self._is_made(new), f"the topic {topic}")

    def _is_made(self, new):
        """Creates a topic; returns whether that worked. The broker that is asked may die."""
        try:
            self.admin.create_topics([new], request_timeout=20)[new.topic].result()
        except KafkaException as error:
            if error.args[0].code() not in _PASSING:
                raise
            return False
        return True

    def metadata(self):
        return until(self._metadata, "somebody who answers")

    def _metadata(self):
        try:
            return self._asker.list_topics(timeout=3)
        except KafkaException:
            return None  # the broker that was asked is dead or paused

    def partition(self, index=0, topic=None):
        return self.metadata().topics[topic or self.topic].partitions[index]

    def told_of(self, index):
        """Describes a partition by each broker's metadata, with the broker's log since its start."""
        told = {}
        for number, address in self.cluster.addresses.items():
            asker = AdminClient({"bootstrap.servers": address, "log_level": 0})
            try:
                found = asker.list_topics(self.topic, timeout=3)
            except KafkaException as error:
                told[number] = error
                continue
            partition = found.topics[self.topic].partitions.get(index)
            told[number] = sorted(found.brokers), found.controller_id, partition and (partition.leader, partition.isrs)
        logs = "\n".join(f"-- broker {number}\n{self.cluster.log(number)[-4000:]}" for number in self.cluster.brokers)
        return f"{told}\n{logs}"

    @property
    def controller(self):
        return until(lambda: max(0, self.metadata().controller_id), "a controller")

    def in_sync(self, topic=None):
        """All replicas of all partitions are."""
        found = self.metadata().topics.get(topic or self.topic)
        return found is not None and all(len(one.isrs) == len(one.replicas) for one in found.partitions.values())

    def wait_until_in_sync(self):
        until(self.in_sync, "all replicas in sync")

    def alive(self):
        return sorted(self.metadata().brokers)

    def wait_until_all_live(self):
        until(lambda: self.alive() == sorted(self.cluster.brokers), "all brokers")

    def mend(self, *topics):
        """Brings back killed and paused brokers, and waits until these topics are in sync and no broker leads all of
        their partitions. One broker leads all of them if all others came back before it."""
        for number, broker in self.cluster.brokers.items():
            if broker.is_running:
                self.cluster.resume(number)
            else:
                self.cluster.restart(number)
        self.wait_until_all_live()
        for topic in topics:
            until(lambda topic=topic: self.in_sync(topic), f"all replicas of {topic} in sync")
        with Admin(bootstrap_servers=self.cluster.bootstrap_servers) as admin:
            admin.elect_leaders()

    # -- what is there in the end

    def records(self):
        """By partition, the values from its beginning to its end."""
        ends = {}
        for index in range(self.partitions):
            errors = []
            ends[index] = until(
                lambda index=index, errors=errors: self._end_of(index, errors),
                f"the end of {self.topic}-{index}",
                why=lambda index=index, errors=errors: f"{errors[-1]}; {self.told_of(index)}",
            )[1]
        consumer = self._new_consumer()
        try:
            consumer.assign([TopicPartition(self.topic, index, 0) for index in ends])
            found = defaultdict(list)
            deadline = time.monotonic() + PATIENCE_S
            while sum(map(len, found.values())) < sum(ends.values()) and time.monotonic() < deadline:
                for message in consumer.consume(1_000, 0.5):
                    if message.error() is None:
                        found[message.partition()].append(int(message.value()))
            return found
        finally:
            consumer.close()

    def _new_consumer(self):
        return Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap_servers,
                "group.id": "never-committed",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )

    def _end_of(self, index, errors):
        """By a consumer of its own: one that has once heard that nobody leads a partition says so for good."""
        consumer = self._new_consumer()
        try:
            return consumer.get_watermark_offsets(TopicPartition(self.topic, index), timeout=5)
        except KafkaException as error:
            errors.append(error)
            return None  # just now nobody leads it
        finally:
            consumer.close()


def coordinator_of(cluster, key, *, of_transactions=False):
    """The broker that coordinates a group or a transactional id, as those say that run."""

    def ask():
        for number, broker in cluster.brokers.items():
            if broker.is_running:
                with RawClient(cluster.addresses[number]) as client:
                    answer = client.ask(Api.FIND_COORDINATOR, 3, key=key, key_type=int(of_transactions))
                    if answer.error_code == 0:
                        return answer.node_id
        return None

    return until(ask, f"a coordinator of {key}")


def check_replicas_are_alike(folder, topic):
    """Byte for byte, once all brokers have stopped in sync: a follower's log is a copy of its leader's."""
    logs = defaultdict(dict)
    for path in folder.glob(f"broker-*/{topic}-*"):
        if not path.name.endswith("-delete"):
            logs[path.name][path.parent.name] = b"".join(file.read_bytes() for file in sorted(path.glob("*.log")))
    assert logs
    for partition, by_broker in logs.items():
        sizes = {broker: len(data) for broker, data in by_broker.items()}
        assert len(set(by_broker.values())) == 1, f"{partition} differs: {sizes}"


def codecs_of(folder, topic):
    """Of all its batches, on all brokers of a cluster in that folder."""
    logs = list(folder.glob(f"broker-*/{topic}-*/*.log"))
    assert logs
    return {Codec(header.codec_number).name for log in logs for _, header in iter_headers(log.read_bytes())}


class Load:
    """Numbers, written to all partitions in turn from a thread until it is stopped."""

    def __init__(self, harness, rate=2_000, *, width=1, **settings):
        """
        :param width: with zeros before it, so that it is worth being compressed.
        """
        self._harness = harness
        self._width = width
        self._pause_s = 1 / rate
        self.producer = self._made_producer(harness.cluster.bootstrap_servers, settings)
        self.acknowledged = defaultdict(list)
        self.count = 0
        self.failures = []
        self.longest_pause_s = 0.0
        #: By partition, from one acknowledgement to the next.
        self._longest_pauses_s = defaultdict(float)
        self._last_ack_at = time.monotonic()
        self._last_acks_at = {}
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        until(lambda: self.count > 100, "the first acknowledgements")
        self.longest_pause_s = 0.0
        self._longest_pauses_s.clear()
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        """Ends the load, and waits for its last acknowledgements. A second call does nothing."""
        if not self._is_stopped.is_set():
            self._is_stopped.set()
            self._thread.join()
            self._end()

    def flows(self, count=500):
        """Waits for ``count`` more acknowledgements."""
        goal = self.count + count
        until(lambda: self.count >= goal, f"{count} acknowledgements")

    def take_pauses_s(self):
        """By partition, the longest since they were last taken."""
        taken, self._longest_pauses_s = self._longest_pauses_s, defaultdict(float)
        return taken

    def _run(self):
        number = 0
        while not self._is_stopped.is_set():
            if self._send(number, number % self._harness.partitions):
                number += 1
            if number % 20 == 0:
                self._is_stopped.wait(20 * self._pause_s)

    def _value(self, number):
        return str(number).zfill(self._width).encode()

    def _answered(self, partition, number, error):
        if error is not None:
            self.failures.append(str(error))
            return
        now = time.monotonic()
        self.longest_pause_s = max(self.longest_pause_s, now - self._last_ack_at)
        self._last_ack_at = now
        pause_s = now - self._last_acks_at.get(partition, now)
        self._longest_pauses_s[partition] = max(self._longest_pauses_s[partition], pause_s)
        self._last_acks_at[partition] = now
        self.count += 1
        self.acknowledged[partition].append(number)

    # -- by librdkafka

    def _made_producer(self, bootstrap_servers, settings):
        return Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "delivery.timeout.ms": 60_000,
                "retry.backoff.ms": 50,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "topic.metadata.refresh.fast.interval.ms": 50,
                "socket.timeout.ms": 3_000,
                "log_level": 0,
                **settings,
            }
        )

    def _send(self, number, partition):
        """Whether there was room for it."""
        try:
            self.producer.produce(
                self._harness.topic, self._value(number), partition=partition, on_delivery=self._delivered
            )
        except BufferError:
            self.producer.poll(0.05)
            return False
        self.producer.poll(0)
        return True

    def _delivered(self, error, message):
        self._answered(message.partition(), int(message.value()), error)

    def _end(self):
        left = self.producer.flush(PATIENCE_S)
        assert left == 0, f"{left} records were not answered"

    def check(self):
        """Every record was acknowledged, and is there once and in order."""
        assert self.failures == []
        found = self._harness.records()
        for index in range(self._harness.partitions):
            wanted, there = self.acknowledged[index], found[index]
            assert sorted(there) == sorted(set(there)), f"doubled in {index}: {len(there) - len(set(there))}"
            assert there == sorted(wanted), (
                f"partition {index}: {len(set(wanted) - set(there))} lost of {len(wanted)}, "
                f"{len(set(there) - set(wanted))} never acknowledged"
            )


class OurLoad(Load):
    """By our own producer."""

    def _made_producer(self, bootstrap_servers, settings):
        return OurProducer(bootstrap_servers=bootstrap_servers, linger_ms=5, delivery_timeout_ms=60_000, **settings)

    def _send(self, number, partition):
        def delivered(_, error):
            self._answered(partition, number, error)

        self.producer.send(self._harness.topic, self._value(number), partition=partition, on_delivery=delivered)
        return True

    def _end(self):
        self.producer.flush(PATIENCE_S)
        self.producer.close()
