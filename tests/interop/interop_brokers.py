"""Starts the brokers for the clients: one broker, or a cluster with ``HEADRACE_TEST_BROKERS=3``.

The brokers of a cluster have the ids 0, 1, ..., and topics have as many replicas as there are brokers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

from interop_records import WITHIN_S

from headrace import Broker
from headrace.testing.cluster_process import LocalClusterProcess

BROKERS = int(os.environ.get("HEADRACE_TEST_BROKERS", "1"))
#: For ``headrace start``.
CLUSTER_OPTIONS = ("--broker-id", "0", "-o", f"default.replication.factor={BROKERS}")


@contextmanager
def own_brokers(folder: Path, config: Mapping[str, object] | None = None) -> Iterator[str]:
    """Brokers that no other test uses; where they listen."""
    config = config or {}
    if BROKERS == 1:
        with Broker(config=config) as broker:
            yield broker.bootstrap_servers
        return
    settings = {"group.initial.rebalance.delay.ms": 0, **config}
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    with LocalClusterProcess(folder, *CLUSTER_OPTIONS, *options, brokers=BROKERS) as cluster:
        yield cluster.address


def until(condition: Callable[[], bool]) -> None:
    """Of several brokers a client asks any, and one may learn a moment later of changes by another."""
    deadline = monotonic() + WITHIN_S
    while not condition():
        assert monotonic() < deadline
        sleep(0.01)
