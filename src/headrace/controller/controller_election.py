"""The controller election: the first broker that creates the ephemeral znode ``/controller`` is the controller.

``/controller_epoch`` counts the controllers. The transaction that creates ``/controller`` also increments the epoch. So
two controllers never have the same epoch. Every write of the controller checks the version of ``/controller_epoch``
(``fenced_writer.py``). As in Kafka, the epoch starts at 0, and the first controller has epoch 1.
"""

from __future__ import annotations

from logging import getLogger
from typing import NamedTuple

from headrace.coordination import retried_changes
from headrace.coordination.interface import (
    BadVersionError,
    Check,
    Coordination,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    SetData,
    Watcher,
)
from headrace.coordination.paths import CONTROLLER, CONTROLLER_EPOCH
from headrace.coordination.znodes import ControllerRegistration, decode_controller_epoch, encode_controller_epoch

logger = getLogger(__name__)

_EPOCH_BEFORE_FIRST = 0


class CurrentController(NamedTuple):
    broker_id: int
    #: Our own session created ``/controller``.
    is_ours: bool


class ControllerEpoch(NamedTuple):
    epoch: int
    #: The version of the znode ``/controller_epoch`` in this epoch.
    znode_version: int


async def read_controller(coordination: Coordination, watch: Watcher) -> CurrentController | None:
    """Reads ``/controller``; None if the znode does not exist. ``watch`` is called at the next change of the znode."""
    while True:
        stat = await coordination.exists(CONTROLLER, watch=watch)
        if stat is None:
            return None
        try:
            data, stat = await coordination.get(CONTROLLER)
        except NoNodeError:
            continue
        registration = ControllerRegistration.from_json(data)
        return CurrentController(registration.broker_id, stat.ephemeral_owner == coordination.session_id)


async def run_for_controller(coordination: Coordination, broker_id: int, now_ms: int) -> ControllerEpoch | None:
    """Tries to become the controller; None if another broker was elected first."""
    epoch, version = await _read_epoch(coordination)
    content = encode_controller_epoch(epoch + 1)

    async def is_elected() -> bool:
        stat_of_controller = await coordination.exists(CONTROLLER)
        data, stat = await coordination.get(CONTROLLER_EPOCH)
        is_ours = stat_of_controller is not None and stat_of_controller.ephemeral_owner == coordination.session_id
        return is_ours and data == content and stat.version == version + 1

    operations = (
        Create(CONTROLLER, ControllerRegistration(broker_id, now_ms).to_json(), ephemeral=True),
        SetData(CONTROLLER_EPOCH, content, version),
    )
    try:
        await retried_changes.multi(coordination, operations, is_elected)
    except (NodeExistsError, BadVersionError, NoNodeError):
        return None
    return ControllerEpoch(epoch + 1, version + 1)


async def resign(coordination: Coordination) -> None:
    """Deletes ``/controller`` if our session still owns it. Checks the epoch, to protect a newly elected controller."""
    _, version = await _read_epoch(coordination)
    stat = await coordination.exists(CONTROLLER)
    if stat is None or stat.ephemeral_owner != coordination.session_id:
        return
    operations = (Check(CONTROLLER_EPOCH, version), Delete(CONTROLLER))
    try:
        await retried_changes.multi(coordination, operations, lambda: _is_gone(coordination))
    except (NoNodeError, BadVersionError) as error:
        logger.debug("%s belongs to another broker already: %r", CONTROLLER, error)


async def _is_gone(coordination: Coordination) -> bool:
    return await coordination.exists(CONTROLLER) is None


async def _read_epoch(coordination: Coordination) -> tuple[int, int]:
    """The epoch and the version of its znode. Creates the znode if it does not exist."""
    while True:
        try:
            data, stat = await coordination.get(CONTROLLER_EPOCH)
            return decode_controller_epoch(data), stat.version
        except NoNodeError:
            pass
        try:
            await retried_changes.create_persistent(
                coordination, CONTROLLER_EPOCH, encode_controller_epoch(_EPOCH_BEFORE_FIRST)
            )
        except NodeExistsError:
            continue
