"""The replicas on this broker, and what the controller says of them: LeaderAndIsr and StopReplica.

Being made; what is here is the interface.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.controller.requests import LeaderAndIsr, LeadersAnswer, StopAnswer, StopReplica

if TYPE_CHECKING:
    from headrace.broker.broker import Broker


class ReplicaManager:
    """Made once logs are open and ``broker.cluster`` is set; the purgatories may come later, before :meth:`start`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def start(self) -> None:
        """The jobs begin: shrinking ISRs, checkpoints of high watermarks."""
        raise NotImplementedError

    async def lead(self, request: LeaderAndIsr) -> LeadersAnswer:
        """Makes, renews and leaves leaders and followers. Reads ``/config/topics/T`` of topics that are new here."""
        raise NotImplementedError

    async def stop_replicas(self, request: StopReplica) -> StopAnswer:
        raise NotImplementedError

    def topic_configured(self, topic: str, overrides: Mapping[str, str]) -> None:
        """The topic's own settings have changed: its logs', ``min.insync.replicas``, throttled replicas. To be called
        for every topic whose configs change, whether it has replicas here or not."""
        raise NotImplementedError

    def defaults_changed(self) -> None:
        """Settings of the broker that topics fall back to have changed."""
        raise NotImplementedError

    def brokers_changed(self) -> None:
        """``broker.metadata.nodes`` has changed: who is not there is not let into an ISR."""
        raise NotImplementedError

    def log_dirs_failed(self) -> None:
        """A log dir went offline: its partitions are lost, and the controller is told. On the loop."""
        raise NotImplementedError

    async def close(self) -> None:
        """No fetchers, no jobs, nobody waits any more. Logs are closed afterwards, by whoever opened them."""
        raise NotImplementedError
