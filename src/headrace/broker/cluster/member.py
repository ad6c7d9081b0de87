"""A broker as a member of a cluster: what it has beside its logs and its listeners, and in which order that comes up.

Being made in several steps; the attributes are what handlers and the other parts may rely on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.coordination.interface import Coordination
from headrace.protocol.errors import StaleBrokerEpoch, StaleControllerEpoch

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

#: As a broker's epoch in a request: it does not say (KIP-380).
ANY_BROKER_EPOCH = -1


class ClusterMember:
    coordination: Coordination
    links: Any
    channel: Any
    controller: Any
    replicas: Any

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        #: The zxid of our registration; -1 while there is none.
        self.broker_epoch = -1
        #: The newest that any request came with.
        self.controller_epoch = 0

    def check_controller(self, controller_epoch: int) -> None:
        """A request of a controller: one that has been replaced is refused, a newer one remembered.

        :raises StaleControllerEpoch: if we have heard from a later one.
        """
        if controller_epoch < self.controller_epoch:
            raise StaleControllerEpoch(f"the controller's epoch is {self.controller_epoch}, not {controller_epoch}")
        self.controller_epoch = controller_epoch

    def check_broker_epoch(self, epoch: int) -> None:
        """A request that was meant for an earlier life of this broker is refused (KIP-380).

        :raises StaleBrokerEpoch: if it was.
        """
        if epoch != ANY_BROKER_EPOCH and epoch < self.broker_epoch:
            raise StaleBrokerEpoch(f"this broker's epoch is {self.broker_epoch}, not {epoch}")
