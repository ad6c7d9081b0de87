"""Decides what the runner does with a version: by its desired state, its state, and whether it runs in this process.

**Switching.** A version that has caught up and has never served is switched to if no version serves yet. It is also
switched to if its definition says ``switch = "auto"`` and it is newer than the serving version. A version that has
served before was switched away from, by a user or for a newer version, and is not switched to automatically.
"""

from __future__ import annotations

from enum import Enum, auto

from headrace.pipeline.serving.catalog import DesiredState, Version, VersionState, View


class Decision(Enum):
    #: Start the version, also if its state is that of a process that died or stopped. It begins in ``starting``.
    START = auto()
    #: Start the version again if its retry is due.
    RETRY = auto()
    WATCH = auto()
    STOP = auto()
    DROP = auto()
    NOTHING = auto()


#: For a version that does not run in this process, by desired state and state.
DECISIONS: dict[DesiredState, dict[VersionState, Decision]] = {
    DesiredState.RUN: {
        **dict.fromkeys(VersionState, Decision.START),
        VersionState.FAILED: Decision.RETRY,
        VersionState.DROPPING: Decision.DROP,
    },
    DesiredState.STOP: {
        **dict.fromkeys(VersionState, Decision.STOP),
        VersionState.STOPPED: Decision.NOTHING,
        VersionState.DROPPING: Decision.DROP,
    },
    DesiredState.DROP: dict.fromkeys(VersionState, Decision.DROP),
}
#: For a version that runs in this process, by desired state.
_WHEN_ACTIVE = {
    DesiredState.RUN: Decision.WATCH,
    DesiredState.STOP: Decision.STOP,
    DesiredState.DROP: Decision.DROP,
}


def decide(version: Version, *, is_active: bool) -> Decision:
    return _WHEN_ACTIVE[version.desired_state] if is_active else DECISIONS[version.desired_state][version.state]


def may_switch(view: View, version: Version) -> bool:
    """Whether a version that has caught up is switched to without a command."""
    if view.serving_version is None:
        return True
    kappa = version.definition["kappa"]
    assert isinstance(kappa, dict)
    is_new = version.served_ms is None and version.version > view.serving_version
    return is_new and kappa["switch"] == "auto"


def needs_restart(applied: Version, running: Version) -> bool:
    """Whether the version has to start again because its definition changed.

    A change of ``switch`` alone needs no restart: the runner reads it when it decides about a switch.
    """
    return _without_switch(applied.definition) != _without_switch(running.definition)


def _without_switch(definition: dict[str, object]) -> dict[str, object]:
    kappa = definition["kappa"]
    assert isinstance(kappa, dict)
    return definition | {"kappa": kappa | {"switch": ""}}
