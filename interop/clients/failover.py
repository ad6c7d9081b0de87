# ruff: noqa: T201  what it prints is its report
"""Our clients on a cluster of three Apache Kafka brokers whose leaders die one after the other.

A producer (idempotent, acks=all) writes numbered records to six partitions; two consumers, one of each group protocol,
read and commit them. One broker is killed, one is stopped in good order (its leaderships move before it ends), one is
killed again. Each partition must end up with every number once and in order, and each consumer must have been handed
exactly that. Meanwhile the admin client asks all brokers and all leaders, and is answered in part or after a while.

    python interop/clients/failover.py JARS FOLDER
"""

import signal
import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

from apache_cluster import NODES, ApacheCluster

from headrace import Admin, Consumer, Producer, TopicPartition
from headrace.client.types import RecordMetadata

TOPIC = "numbers"
PARTITIONS = 6
#: How many records a partition gets before the next broker goes down, and after the last has come back.
STEP = 4_000
COUNT = STEP * (NODES + 1)
ON_THE_WAY = 3_000
PATIENCE_S = 120.0
ENDS = (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL)

Read = dict[int, list[int]]


class Progress:
    """How much is acknowledged, and how far the writer may go."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.acknowledged, self.may_write = 0, STEP
        self.failures: list[BaseException] = []

    def on_delivery(self, _: RecordMetadata | None, error: Exception | None) -> None:
        with self._changed:
            self.acknowledged += 1
            if error is not None:
                self.failures.append(error)
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: condition() or bool(self.failures), PATIENCE_S):
                raise TimeoutError(f"{self.acknowledged} of {COUNT * PARTITIONS} are acknowledged")
            if self.failures:
                raise self.failures[0]

    def allow(self, count: int) -> None:
        with self._changed:
            self.may_write = count
            self._changed.notify_all()

    def guard(self, work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001  told by the check
                with self._changed:
                    self.failures.append(error)
                    self._changed.notify_all()

        return run


def write(servers: list[str], progress: Progress) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(COUNT):
            on_the_way = number * PARTITIONS - ON_THE_WAY
            if progress.acknowledged < on_the_way or number >= progress.may_write:
                progress.wait_for(
                    lambda least=on_the_way, number=number: (
                        progress.acknowledged >= least and number < progress.may_write
                    )
                )
            for partition in range(PARTITIONS):
                producer.send(TOPIC, b"%d" % number, partition=partition, on_delivery=progress.on_delivery)


def read(servers: list[str], protocol: str, into: Read) -> None:
    options = {"group_id": protocol, "group_protocol": protocol, "enable_auto_commit": False}
    left = COUNT * PARTITIONS
    with Consumer(TOPIC, bootstrap_servers=servers, auto_offset_reset="earliest", **options) as consumer:
        while left > 0:
            for record in consumer.poll(1_000):
                into[record.partition].append(int(record.value or b"-1"))
                left -= 1
            consumer.commit()


def wait_until_whole(admin: Admin) -> None:
    """Until all brokers are there and all replicas in sync."""
    until = monotonic() + PATIENCE_S
    while monotonic() < until:
        partitions = admin.describe_topic(TOPIC).partitions if TOPIC in admin.list_topics() else ()
        is_whole = all(len(each.in_sync_replicas) == NODES for each in partitions)
        if is_whole and len(admin.describe_cluster().brokers) == NODES:
            return
        sleep(0.2)
    raise TimeoutError("the cluster does not come together")


def ask_everything(admin: Admin) -> None:
    """What takes all leaders, all brokers and all coordinators."""
    partitions = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
    ends = admin.list_offsets(dict.fromkeys(partitions, "latest")).all()
    assert all(end.offset > 0 for end in ends.values()), ends
    groups = ["classic", "consumer", *(f"other-{number}" for number in range(6))]
    for group in groups[2:]:
        admin.alter_group_offsets(group, {partitions[0]: 1}).all()
    assert set(groups) <= {group.group_id for group in admin.list_groups()}
    assert set(admin.describe_groups(groups).all()) == set(groups)
    admin.delete_groups(groups[2:]).all()


def survives_its_leaders(cluster: ApacheCluster) -> None:
    progress = Progress()
    seen: dict[str, Read] = {"classic": defaultdict(list), "consumer": defaultdict(list)}
    work: list[Callable[[], None]] = [lambda: write(cluster.servers, progress)]
    work += [lambda name=name, into=into: read(cluster.servers, name, into) for name, into in seen.items()]
    threads = [threading.Thread(target=progress.guard(each), daemon=True) for each in work]
    with Admin(bootstrap_servers=cluster.servers) as admin:
        admin.create_topic(TOPIC, PARTITIONS, NODES)
        for thread in threads:
            thread.start()
        for node, how in enumerate(ENDS):
            progress.wait_for(lambda node=node: progress.acknowledged > (node * STEP + STEP // 2) * PARTITIONS)
            cluster.kill(node, how)
            progress.allow((node + 2) * STEP)
            before = progress.acknowledged
            progress.wait_for(lambda before=before: progress.acknowledged > before + ON_THE_WAY)
            ask_everything(admin)
            cluster.start(node)
            wait_until_whole(admin)
    for thread in threads:
        thread.join(PATIENCE_S)
    progress.wait_for(lambda: progress.acknowledged == COUNT * PARTITIONS)
    whole = {partition: list(range(COUNT)) for partition in range(PARTITIONS)}
    for protocol, numbers in seen.items():
        assert numbers == whole, f"{protocol}: {sum(map(len, numbers.values()))} of {COUNT * PARTITIONS} records"


def main(jars: str, folder: str) -> None:
    name = "three Apache brokers die in turn under a producer and two consumers: nothing lost, nothing doubled"
    with ApacheCluster(Path(jars), Path(folder)) as cluster:
        with Admin(bootstrap_servers=cluster.servers, default_api_timeout_ms=int(PATIENCE_S * 1000)) as admin:
            wait_until_whole(admin)
        began = monotonic()
        try:
            survives_its_leaders(cluster)
        except Exception as error:  # noqa: BLE001  this is the report
            print(f"FAILED {name}: {type(error).__name__}: {error}")
        else:
            print(f"ok {name} ({monotonic() - began:.0f} s)")
    print("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
