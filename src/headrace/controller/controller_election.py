"""Who is controller: the first to make ``/controller``, an ephemeral znode.

``/controller_epoch`` counts controllers. It is raised in the same transaction that makes ``/controller``, so that there
is never a controller whose epoch another one had, and its version is what the controller's writes depend on
(``effects.py``). As in Kafka it begins at 0, and the first controller has epoch 1.
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

_BEFORE_FIRST = 0


class CurrentController(NamedTuple):
    broker_id: int
    #: It is our session that made it.
    is_ours: bool


class ControllerEpoch(NamedTuple):
    epoch: int
    #: Of ``/controller_epoch``.
    epoch_version: int


async def read_controller(coordination: Coordination, watch: Watcher) -> CurrentController | None:
    """Who has ``/controller``, if anyone; ``watch`` hears when that changes."""
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
    """Become controller, unless somebody else is faster."""
    epoch, version = await _present_epoch(coordination)
    content = encode_controller_epoch(epoch + 1)

    async def is_won() -> bool:
        holder = await coordination.exists(CONTROLLER)
        data, stat = await coordination.get(CONTROLLER_EPOCH)
        is_ours = holder is not None and holder.ephemeral_owner == coordination.session_id
        return is_ours and data == content and stat.version == version + 1

    operations = (
        Create(CONTROLLER, ControllerRegistration(broker_id, now_ms).to_json(), ephemeral=True),
        SetData(CONTROLLER_EPOCH, content, version),
    )
    try:
        await retried_changes.multi(coordination, operations, is_won)
    except (NodeExistsError, BadVersionError, NoNodeError):
        return None
    return ControllerEpoch(epoch + 1, version + 1)


async def resign(coordination: Coordination) -> None:
    """Give ``/controller`` back, if it is still ours. Should another broker be elected in between, the epoch tells."""
    _, version = await _present_epoch(coordination)
    stat = await coordination.exists(CONTROLLER)
    if stat is None or stat.ephemeral_owner != coordination.session_id:
        return
    operations = (Check(CONTROLLER_EPOCH, version), Delete(CONTROLLER))
    try:
        await retried_changes.multi(coordination, operations, lambda: _is_gone(coordination))
    except (NoNodeError, BadVersionError) as error:
        logger.debug("%s has gone to somebody else: %r", CONTROLLER, error)


async def _is_gone(coordination: Coordination) -> bool:
    return await coordination.exists(CONTROLLER) is None


async def _present_epoch(coordination: Coordination) -> tuple[int, int]:
    """With its version."""
    while True:
        try:
            data, stat = await coordination.get(CONTROLLER_EPOCH)
            return decode_controller_epoch(data), stat.version
        except NoNodeError:
            pass
        try:
            await retried_changes.create_persistent(
                coordination, CONTROLLER_EPOCH, encode_controller_epoch(_BEFORE_FIRST)
            )
        except NodeExistsError:
            continue
