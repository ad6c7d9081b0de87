"""One simulation: a cluster, clients on it, faults from a seed, and the verdict."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from headrace import AsyncAdmin
from headrace.client.admin.types import NewTopic
from headrace.client.errors import HeadraceError
from headrace.testing.simulator.checker import Watch, check_end, read_log
from headrace.testing.simulator.clients import Clients
from headrace.testing.simulator.cluster import SimulatedCluster
from headrace.testing.simulator.faults import Faults
from headrace.testing.simulator.history import History, Partition

TOPIC = "events"
#: Made at the end: there is a controller, and it works.
_LAST_TOPIC = "last"
_PARTITIONS: list[Partition] = [(TOPIC, 0), (TOPIC, 1)]
_LOOK_EVERY_S = 0.05
_TO_BECOME_WHOLE_S = 120.0


class Verdict(NamedTuple):
    seed: int
    faults: list[str]
    history: History
    #: How long the cluster thinks that it has run.
    virtual_s: float

    @property
    def is_good(self) -> bool:
        return not self.faults

    def summary(self) -> str:
        acknowledged, transactions = len(self.history.acknowledged), len(self.history.transactions)
        seen = sum(map(len, self.history.consumed.values()))
        return (
            f"seed {self.seed}: {self.virtual_s:.0f} s, {len(self.history.events)} events, {acknowledged} records "
            f"acknowledged, {transactions} transactions, {seen} records read, {len(self.faults)} faults"
        )


def simulate(seed: int, folder: Path, *, fault_count: int = 8, has_transactions: bool = True) -> Verdict:
    with chance_of(seed):
        return _simulate(seed, folder, fault_count, has_transactions)


@contextmanager
def chance_of(seed: int) -> Iterator[None]:
    """Everything that is left to chance, ids and waits among it, comes from the seed too."""
    state, urandom = random.getstate(), os.urandom
    random.seed(seed)
    os.urandom = random.randbytes
    try:
        yield
    finally:
        os.urandom = urandom
        random.setstate(state)


def _simulate(seed: int, folder: Path, fault_count: int, has_transactions: bool) -> Verdict:
    cluster = SimulatedCluster(seed, folder)
    history = History()
    try:
        faults = cluster.loop.run_until_complete(_run(cluster, history, fault_count, has_transactions))
    finally:
        virtual_s = cluster.loop.time()
        cluster.close()
    return Verdict(seed, faults, history, virtual_s)


async def _run(cluster: SimulatedCluster, history: History, fault_count: int, has_transactions: bool) -> list[str]:
    await cluster.start()
    await _create(cluster, TOPIC, len(_PARTITIONS))
    clients = Clients(cluster, history, _PARTITIONS)
    faults = Faults(cluster, history, _PARTITIONS)
    await faults.until_in_sync()
    watching = asyncio.ensure_future(_watch(cluster, history))
    writing = [asyncio.ensure_future(clients.produce(f"producer-{number}")) for number in range(2)]
    if has_transactions:
        writing.append(asyncio.ensure_future(clients.produce_transactions("transactions")))
    reading = asyncio.ensure_future(clients.read("reader"))
    awaited = "the replicas"
    try:
        await faults.run(fault_count)
        history.note(cluster.loop.time(), "no more faults")
        await faults.until_in_sync(_TO_BECOME_WHOLE_S)
        clients.is_over = True
        async with asyncio.timeout(_TO_BECOME_WHOLE_S):
            awaited = "the producers"
            await asyncio.gather(*writing)
            awaited = "the ends of transactions"
            await _until_all_is_committed(cluster)
            awaited = "the reader"
            await _until_all_is_read(cluster, history, reading)
            awaited = "a topic that is made"
            await _create(cluster, _LAST_TOPIC)
    except TimeoutError:
        history.faults.append(f"{cluster.loop.time():.3f} s: the cluster does not become whole: it waits for {awaited}")
        return history.faults
    except HeadraceError as error:
        history.faults.append(f"{cluster.loop.time():.3f} s: a client fails: {error!r}")
        return history.faults
    finally:
        for task in (watching, reading, *writing):
            task.cancel()
        await asyncio.wait([watching, reading, *writing])
    return check_end(
        history,
        {
            partition: {
                broker_id: replica
                for broker_id, broker in cluster.brokers.items()
                if (replica := broker.partitions.get(*partition)) is not None
            }
            for partition in _PARTITIONS
        },
    )


async def _create(cluster: SimulatedCluster, topic: str, partitions: int = 1) -> None:
    async with AsyncAdmin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(topic, partitions, 3)])


async def _watch(cluster: SimulatedCluster, history: History) -> None:
    watch = Watch(cluster, history, _PARTITIONS)
    cluster.tree.on_change = watch.look
    cluster.network.on_fetched = watch.look_at_fetched
    while True:
        watch.look()
        await asyncio.sleep(_LOOK_EVERY_S)


async def _until_all_is_committed(cluster: SimulatedCluster) -> None:
    """Every replica has all, knows that it is committed, and no transaction is open."""

    def is_settled() -> bool:
        for partition in _PARTITIONS:
            replicas = [broker.partitions.get(*partition) for broker in cluster.brokers.values()]
            ends = {(one.log.next_offset, one.high_watermark, one.log.last_stable_offset) for one in replicas if one}
            if len(replicas) < len(cluster.ids) or None in replicas or len(ends) > 1 or len(set(*ends)) > 1:
                return False
        return True

    while not is_settled():  # noqa: ASYNC110  virtual time
        await asyncio.sleep(0.1)


async def _until_all_is_read(cluster: SimulatedCluster, history: History, reading: asyncio.Future[None]) -> None:
    broker = next(iter(cluster.brokers.values()))
    for partition in _PARTITIONS:
        replica = broker.partitions.get(*partition)
        assert replica is not None
        _, fates = read_log(replica)
        while not reading.done() and len(history.consumed.get(("reader", partition), ())) < sum(fates.values()):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    if reading.done():
        await reading
