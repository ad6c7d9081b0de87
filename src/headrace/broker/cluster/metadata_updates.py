"""UpdateMetadata into the metadata cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.controller.requests import UpdateMetadata

if TYPE_CHECKING:
    from headrace.broker.broker import Broker


def apply_update(broker: Broker, request: UpdateMetadata) -> None:
    """
    :raises StaleControllerEpoch:
    :raises StaleBrokerEpoch:
    """
    assert broker.cluster is not None
    broker.cluster.check_controller(request.controller_epoch)
    broker.cluster.check_broker_epoch(request.broker_epoch)
