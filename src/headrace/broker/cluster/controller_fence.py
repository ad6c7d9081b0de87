"""Rejects requests of controllers that have been replaced, and requests for an earlier registration of this broker.

The controller's epoch grows with each election. The broker's epoch is the zxid of its registration (KIP-380), so it
changes with each restart and each new session.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.protocol.errors import StaleBrokerEpoch, StaleControllerEpoch

#: The broker epoch of a request that does not name one (KIP-380).
ANY_BROKER_EPOCH = -1


class ControllerFence:
    def __init__(self, broker_epoch: Callable[[], int]) -> None:
        self._broker_epoch = broker_epoch
        #: The newest controller epoch that any request had.
        self.controller_epoch = 0

    def check(self, broker_epoch: int, controller_epoch: int) -> None:
        """
        :raises StaleBrokerEpoch: if the request is for an earlier registration of this broker.
        :raises StaleControllerEpoch: if a later controller has sent a request.
        """
        self.check_broker_epoch(broker_epoch)
        self.check_controller(controller_epoch)

    def check_broker_epoch(self, epoch: int) -> None:
        ours = self._broker_epoch()
        if epoch != ANY_BROKER_EPOCH and epoch < ours:
            raise StaleBrokerEpoch(f"this broker's epoch is {ours}, not {epoch}")

    def check_controller(self, controller_epoch: int) -> None:
        if controller_epoch < self.controller_epoch:
            raise StaleControllerEpoch(f"the controller's epoch is {self.controller_epoch}, not {controller_epoch}")
        self.controller_epoch = controller_epoch
