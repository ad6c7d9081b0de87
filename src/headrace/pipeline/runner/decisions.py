"""What the runner does about a version, by what is wanted of it, its state, and whether it is at work here.

**Switching.** A version that never served is switched to when it has caught up, if it says ``auto`` or nothing serves
yet, and if it is newer than the one that serves. One that served before was switched away from by a user or a newer
version, and is left alone.
"""

from __future__ import annotations

from enum import Enum, auto

from headrace.pipeline.serving.catalog import State, Version, View, Wanted


class Decision(Enum):
    #: Also one whose state is that of a process that died or stopped: it starts over from ``starting``.
    START = auto()
    #: Start again if it is due.
    RETRY = auto()
    WATCH = auto()
    STOP = auto()
    DROP = auto()
    NOTHING = auto()


#: By what is wanted of a version that is not at work here, and its state. Of one that is at work: see ``decide``.
DECISIONS: dict[Wanted, dict[State, Decision]] = {
    Wanted.RUN: {
        **dict.fromkeys(State, Decision.START),
        State.FAILED: Decision.RETRY,
        State.DROPPING: Decision.DROP,
    },
    Wanted.STOP: {
        **dict.fromkeys(State, Decision.STOP),
        State.STOPPED: Decision.NOTHING,
        State.DROPPING: Decision.DROP,
    },
    Wanted.DROP: dict.fromkeys(State, Decision.DROP),
}
_AT_WORK = {Wanted.RUN: Decision.WATCH, Wanted.STOP: Decision.STOP, Wanted.DROP: Decision.DROP}


def decide(version: Version, *, is_at_work: bool) -> Decision:
    return _AT_WORK[version.wanted] if is_at_work else DECISIONS[version.wanted][version.state]


def may_switch(view: View, version: Version) -> bool:
    """Whether one that has caught up is to serve without being asked."""
    if view.serving_version is None:
        return True
    kappa = version.definition["kappa"]
    assert isinstance(kappa, dict)
    is_new = version.served_ms is None and version.version > view.serving_version
    return is_new and kappa["switch"] == "auto"


def runs_otherwise(wanted: Version, running: Version) -> bool:
    """Whether it has to start again to do what its definition says; when to switch is looked up when it matters."""
    return _but_switch(wanted.definition) != _but_switch(running.definition)


def _but_switch(definition: dict[str, object]) -> dict[str, object]:
    kappa = definition["kappa"]
    assert isinstance(kappa, dict)
    return definition | {"kappa": kappa | {"switch": ""}}
