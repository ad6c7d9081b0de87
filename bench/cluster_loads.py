"""Defines the loads of ``cluster.py`` and what they measure, for both sides."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import loads
from cluster_sides import BROKERS, Cluster, Node, knows_all, wait_for
from confluent_kafka.admin import AdminClient, NewTopic
from wire import Asker

from headrace.testing.raw_client import ClosedByPeer

_NO_CONNECTION = (OSError, ClosedByPeer)
_TOPIC_ALREADY_EXISTS = 36
_LIMIT_SECONDS = 120.0


def create_topic(cluster: Cluster, name: str, partitions: int = loads.PARTITIONS, replicas: int = 3) -> None:
    """Each first replica on another broker in turn, on both sides; returns when all replicas are in sync."""
    assignment = [[BROKERS[(index + further) % 3] for further in range(replicas)] for index in range(partitions)]
    new = NewTopic(name, partitions, replica_assignment=assignment, config={"min.insync.replicas": "2"})
    _make(cluster, new)
    with asking(cluster) as ask:
        wait_for(lambda: _all_in_sync(ask(), name, partitions, replicas), f"all replicas of {name} in sync")


def _make(cluster: Cluster, new: NewTopic) -> None:
    client = AdminClient({"bootstrap.servers": cluster.address})
    client.create_topics([new], operation_timeout=60, request_timeout=_LIMIT_SECONDS)[new.topic].result()


@contextlib.contextmanager
def asking(cluster: Cluster, without: int = -1) -> Iterator[Callable[[], Asker]]:
    """Somebody to ask, who lives; the same one as long as it does.

    :param without: not this broker, who is about to die.
    """
    held: list[tuple[Node, Asker]] = []

    def ask() -> Asker:
        alive = [node for node in cluster.alive if node.id != without]
        if held and held[0][0] not in alive:
            held.pop()[1].close()
        while not held:
            for node in alive:
                with contextlib.suppress(ConnectionError):  # one that has just been started does not serve yet
                    held.append((node, Asker(node.address)))
                    break
        return held[0][1]

    try:
        yield ask
    finally:
        for _, asker in held:
            asker.close()


def _all_in_sync(asker: Asker, topic: str, partitions: int, replicas: int) -> bool:
    found = asker.partitions(topic)
    return len(found) == partitions and all(len(one.isr_nodes) == replicas and one.leader_id >= 0 for one in found)


def until_in_sync(cluster: Cluster, topic: str, partitions: int, replicas: int = 3) -> None:
    with asking(cluster) as ask:
        wait_for(lambda: _all_in_sync(ask(), topic, partitions, replicas), f"all replicas of {topic} in sync")


# -- acks


def ack(cluster: Cluster, topic: str, count: int) -> loads.Latency:
    """Of one record with acks=all, from its leader."""
    with asking(cluster) as ask:
        leader = ask().partitions(topic)[0].leader_id
    return loads.one_record_acked(cluster.nodes[leader], topic, count)


# -- many partitions


def create_partitions(cluster: Cluster, topic: str, count: int) -> float:
    """Seconds from asking for a topic with ``count`` partitions until every broker names a leader of each."""
    started = time.perf_counter()
    _make(cluster, NewTopic(topic, count, 3))
    for node in cluster.alive:
        with Asker(node.address) as asker:
            wait_for(lambda asker=asker: _all_led(asker, topic, count), "a leader for all")  # type: ignore[misc]
    return time.perf_counter() - started


def _all_led(asker: Asker, topic: str, count: int) -> bool:
    found = asker.partitions(topic)
    return len(found) == count and all(one.leader_id >= 0 for one in found)


# -- deaths


def leader_killed(cluster: Cluster, topic: str) -> float:
    """Seconds from ``kill -9`` of the leader of partition 0, who is not the controller, until the next ack."""
    controller = cluster.controller
    if controller == _leader(cluster, topic):
        _give_away(cluster, topic, controller)
    victim = _leader(cluster, topic)
    assert victim != controller
    _rest()
    started = time.perf_counter()
    cluster.kill(victim)
    wait_for(lambda: _is_acked(cluster, topic, victim), "an ack after the leader's death")
    return time.perf_counter() - started


def _rest() -> None:
    """Waits until the cluster is idle: brokers send nothing but heartbeats. The time is random."""
    time.sleep(random.uniform(2.0, 4.0))


def _leader(cluster: Cluster, topic: str) -> int:
    with asking(cluster) as ask:
        return int(ask().partitions(topic)[0].leader_id)


def _give_away(cluster: Cluster, topic: str, controller: int) -> None:
    """Another broker leads the topic's one partition, after its replicas have got another order."""
    first = next(number for number in BROKERS if number != controller)
    order = [first, *(number for number in BROKERS if number != first)]
    with Asker(cluster.nodes[controller].address) as asker:
        asker.reassign(topic, 1, order)
    _elect_preferred(cluster, topic, 1)
    wait_for(lambda: _leader(cluster, topic) == first, f"broker {first} to lead")


def _is_acked(cluster: Cluster, topic: str, dead: int) -> bool:
    """Asks who leads, and if it is one that lives writes to it."""
    node = next(node for node in cluster.nodes.values() if node.id != dead)
    try:
        with Asker(node.address) as asker:
            leader = asker.partitions(topic)[0].leader_id
        if leader in (-1, dead):
            return False
        with Asker(cluster.nodes[leader].address) as asker:
            return asker.produce(topic, 0) == 0
    except _NO_CONNECTION:
        return False


def controller_killed(cluster: Cluster, name: str) -> float:
    """Seconds from ``kill -9`` of the controller until a topic of that name is made and has a leader."""
    victim = cluster.controller
    survivor = next(node for node in cluster.nodes.values() if node.id != victim)
    codes: list[int] = []
    _rest()
    started = time.perf_counter()
    cluster.kill(victim)
    try:
        wait_for(lambda: _is_made(survivor, name, codes), "a topic after the controller's death")
    except TimeoutError as error:
        error.add_note(f"the error codes were {sorted(set(codes))}")
        raise
    return time.perf_counter() - started


def _is_made(node: Node, name: str, codes: list[int]) -> bool:
    try:
        with Asker(node.address) as asker:
            codes.append(asker.create_topic(name, 2))
            if codes[-1] not in (0, _TOPIC_ALREADY_EXISTS):
                return False
            wait_for(lambda: _all_led(asker, name, 1), "its leader")
            return True
    except _NO_CONNECTION:
        return False


def bring_back(cluster: Cluster, topic: str) -> None:
    """Starts the dead again and waits for their replicas; the next round finds the cluster as this one did."""
    for broker_id in set(BROKERS) - {node.id for node in cluster.alive}:
        cluster.start_again(broker_id)
    for node in cluster.nodes.values():
        wait_for(partial(knows_all, node), f"broker {node.id} to serve again")
    with asking(cluster) as ask:
        partitions = len(ask().partitions(topic))
    until_in_sync(cluster, topic, partitions)
    _elect_preferred(cluster, topic, partitions)


def _elect_preferred(cluster: Cluster, topic: str, partitions: int) -> None:
    def is_elected() -> bool:
        with Asker(cluster.nodes[cluster.controller].address) as asker:
            asker.elect_preferred(topic, partitions)
            return all(one.leader_id == one.replica_nodes[0] for one in asker.partitions(topic))

    wait_for(is_elected, "the preferred leaders")


class Stream:
    """One record after the other to one partition, on a thread of its own; when each was acked.

    Bare requests: librdkafka waits for seconds after some failures, which is no broker's fault.
    """

    _EVERY_SECONDS = 0.005

    def __init__(self, cluster: Cluster, topic: str, partition: int) -> None:
        self._cluster, self._topic, self._partition = cluster, topic, partition
        self.acked: list[float] = []
        self._leader: Asker | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Stream:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._EVERY_SECONDS):
            try:
                if self._leader is None:
                    self._leader = self._find_leader()
                if self._leader is not None and self._leader.produce(self._topic, self._partition) == 0:
                    self.acked.append(time.perf_counter())
                    continue
            except _NO_CONNECTION:
                pass
            self._close()
        self._close()

    def _find_leader(self) -> Asker | None:
        for node in self._cluster.alive:
            with contextlib.suppress(*_NO_CONNECTION), Asker(node.address) as asker:
                leader = asker.partitions(self._topic)[self._partition].leader_id
                return Asker(self._cluster.nodes[leader].address) if leader in self._cluster.nodes else None
        return None

    def _close(self) -> None:
        if self._leader is not None:
            self._leader.close()
            self._leader = None

    def is_acked_since(self, moment: float) -> bool:
        return bool(self.acked) and self.acked[-1] > moment

    def longest_pause(self, since: float) -> float:
        """Between two acks."""
        return max(after - before for before, after in itertools.pairwise(self.acked) if after > since)


def pause_of_acks(cluster: Cluster, topic: str, victim: int) -> float:
    """The longest, of any of three partitions that each broker leads one of, when one broker is killed with -9."""
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(Stream(cluster, topic, index)) for index in range(len(BROKERS))]
        ask = stack.enter_context(asking(cluster, without=victim))
        started = time.perf_counter()
        wait_for(lambda: all(stream.is_acked_since(started + 2.0) for stream in streams), "a steady stream of acks")
        killed = time.perf_counter()
        cluster.kill(victim)
        wait_for(lambda: _is_out(ask(), topic, victim), "leaders and ISRs without the dead broker")
        out = time.perf_counter()
        wait_for(lambda: all(stream.is_acked_since(out) for stream in streams), "acks from all partitions")
    return max(stream.longest_pause(killed) for stream in streams)


def _is_out(asker: Asker, topic: str, victim: int) -> bool:
    return all(one.leader_id not in (-1, victim) and victim not in one.isr_nodes for one in asker.partitions(topic))


# -- behind


def follower_behind(cluster: Cluster, topic: str, records: int) -> float:
    """Seconds from the start of a broker that has missed all records until it is in the ISR of all partitions."""
    behind = next(number for number in BROKERS if number != cluster.controller)
    cluster.stop(behind)
    loads.produce(cluster, topic, records)
    started = time.perf_counter()
    cluster.start_again(behind)
    until_in_sync(cluster, topic, loads.PARTITIONS)
    seconds = time.perf_counter() - started
    _elect_preferred(cluster, topic, loads.PARTITIONS)
    return seconds


def new_replica(cluster: Cluster, topic: str, records: int) -> float:
    """Seconds until a broker that runs, given a third replica of all records, is in the ISR of all partitions."""
    create_topic(cluster, topic, replicas=2)
    loads.produce(cluster, topic, records)
    started = time.perf_counter()
    with Asker(cluster.nodes[cluster.controller].address) as asker:
        asker.reassign(topic, loads.PARTITIONS, list(BROKERS))
    until_in_sync(cluster, topic, loads.PARTITIONS)
    return time.perf_counter() - started
