"""Runs one simulation: starts a cluster and clients, breaks things by a seed, waits for recovery, checks the result."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from headrace import AsyncAdmin
from headrace.client import own_random
from headrace.client.admin.types import NewTopic
from headrace.client.errors import HeadraceError
from headrace.testing.simulator.checker import InvariantMonitor, check_end, read_log
from headrace.testing.simulator.clients import Clients
from headrace.testing.simulator.cluster import SimulatedCluster
from headrace.testing.simulator.faults import Faults
from headrace.testing.simulator.history import History, Partition

TOPIC = "events"
#: Created at the end, which shows that a controller is active.
_LAST_TOPIC = "last"
_PARTITIONS: list[Partition] = [(TOPIC, 0), (TOPIC, 1)]
_CHECK_EVERY_S = 0.05
_RECOVERY_TIMEOUT_S = 120.0


class SimulationResult(NamedTuple):
    seed: int
    faults: list[str]
    history: History
    #: The simulated time that the run took.
    virtual_s: float

    @property
    def has_passed(self) -> bool:
        return not self.faults

    def summary(self) -> str:
        acknowledged, transactions = len(self.history.acknowledged), len(self.history.transactions)
        seen = sum(map(len, self.history.consumed.values()))
        return (
            f"seed {self.seed}: {self.virtual_s:.0f} s, {len(self.history.events)} events, {acknowledged} records "
            f"acknowledged, {transactions} transactions, {seen} records read, {len(self.faults)} faults"
        )


def simulate(
    seed: int, folder: Path, *, fault_count: int = 8, has_transactions: bool = True, has_logins: bool = False
) -> SimulationResult:
    with seeded_randomness(seed):
        return _simulate(SimulatedCluster(seed, folder, has_logins=has_logins), seed, fault_count, has_transactions)


@contextmanager
def seeded_randomness(seed: int) -> Iterator[None]:
    """Makes all random numbers depend on the seed: also ids (``os.urandom``) and the back-off times of clients."""
    state, state_of_clients, urandom = random.getstate(), own_random.getstate(), os.urandom
    random.seed(seed)
    own_random.seed(seed)
    os.urandom = random.randbytes
    try:
        yield
    finally:
        os.urandom = urandom
        own_random.setstate(state_of_clients)
        random.setstate(state)


def _simulate(cluster: SimulatedCluster, seed: int, fault_count: int, has_transactions: bool) -> SimulationResult:
    history = History()
    try:
        faults = cluster.loop.run_until_complete(_run(cluster, history, fault_count, has_transactions))
    finally:
        virtual_s = cluster.loop.time()
        cluster.close()
    return SimulationResult(seed, faults, history, virtual_s)


async def _run(cluster: SimulatedCluster, history: History, fault_count: int, has_transactions: bool) -> list[str]:
    await cluster.start()
    await _create(cluster, TOPIC, len(_PARTITIONS))
    clients = Clients(cluster, history, _PARTITIONS)
    faults = Faults(cluster, history, _PARTITIONS)
    await faults.until_in_sync()
    monitoring = asyncio.ensure_future(_monitor(cluster, history))
    writing = [asyncio.ensure_future(clients.produce(f"producer-{number}")) for number in range(2)]
    if has_transactions:
        writing.append(asyncio.ensure_future(clients.produce_transactions("transactions")))
    reading = asyncio.ensure_future(clients.read("reader"))
    awaited = "the replicas to be in sync"
    try:
        await faults.run(fault_count)
        history.note(cluster.loop.time(), "no more faults")
        await faults.until_in_sync(_RECOVERY_TIMEOUT_S)
        clients.is_stopping = True
        async with asyncio.timeout(_RECOVERY_TIMEOUT_S):
            awaited = "the producers to finish"
            await asyncio.gather(*writing)
            awaited = "transactions to end"
            await _until_all_is_committed(cluster)
            awaited = "the reader to read all records"
            await _until_all_is_read(cluster, history, reading)
            awaited = "a topic to be created"
            await _create(cluster, _LAST_TOPIC)
    except TimeoutError:
        history.faults.append(f"{cluster.loop.time():.3f} s: the cluster does not recover: it waits for {awaited}")
        return history.faults
    except HeadraceError as error:
        history.faults.append(f"{cluster.loop.time():.3f} s: a client fails: {error!r}")
        return history.faults
    finally:
        for task in (monitoring, reading, *writing):
            task.cancel()
        await asyncio.wait([monitoring, reading, *writing])
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
    async with AsyncAdmin(**cluster.client_options) as admin:
        await admin.create_topics([NewTopic(topic, partitions, 3)])


async def _monitor(cluster: SimulatedCluster, history: History) -> None:
    monitor = InvariantMonitor(cluster, history, _PARTITIONS)
    cluster.tree.on_change = monitor.check_brokers
    cluster.network.on_fetched = monitor.check_fetched
    while True:
        monitor.check_brokers()
        await asyncio.sleep(_CHECK_EVERY_S)


async def _until_all_is_committed(cluster: SimulatedCluster) -> None:
    """Waits until every replica has all records, all are committed, and no transaction is open."""

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
