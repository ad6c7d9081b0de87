"""The states of a version of a view, and the table of transitions between them.

::

    starting -> replaying <-> caught_up -> serving <-> standby
        (each of these may fail or stop; a version that failed or stopped may start again)
    every state but serving -> dropping -> the version is removed

A version in state ``serving`` or ``standby`` runs. A standby is kept up to date, so that a rollback to it loses
nothing. If the serving version fails, readers still see its rows, and its view still points at it; started again, it
catches up like any other version. The serving version cannot be dropped: switch to another version first.
"""

from __future__ import annotations

from enum import StrEnum

from headrace.pipeline.serving.errors import IllegalTransition


class VersionState(StrEnum):
    STARTING = "starting"
    REPLAYING = "replaying"
    CAUGHT_UP = "caught_up"
    SERVING = "serving"
    STANDBY = "standby"
    STOPPED = "stopped"
    FAILED = "failed"
    DROPPING = "dropping"


class VersionEvent(StrEnum):
    STARTED = "started"
    CAUGHT_UP = "caught_up"
    FELL_BEHIND = "fell_behind"
    SWITCHED_TO = "switched_to"
    SWITCHED_AWAY = "switched_away"
    STOPPED = "stopped"
    FAILED = "failed"
    RESTARTED = "restarted"
    DROPPED = "dropped"


S, E = VersionState, VersionEvent
_ENDS = {E.STOPPED: S.STOPPED, E.FAILED: S.FAILED}
_DROPS = {E.DROPPED: S.DROPPING}

#: For each state, the events that are allowed and the state that each leads to. Any other event is refused.
TRANSITIONS: dict[VersionState, dict[VersionEvent, VersionState]] = {
    S.STARTING: {E.STARTED: S.REPLAYING, **_ENDS, **_DROPS},
    S.REPLAYING: {E.CAUGHT_UP: S.CAUGHT_UP, **_ENDS, **_DROPS},
    S.CAUGHT_UP: {E.FELL_BEHIND: S.REPLAYING, E.SWITCHED_TO: S.SERVING, **_ENDS, **_DROPS},
    S.SERVING: {E.SWITCHED_AWAY: S.STANDBY, **_ENDS},
    S.STANDBY: {E.SWITCHED_TO: S.SERVING, **_ENDS, **_DROPS},
    S.STOPPED: {E.RESTARTED: S.STARTING, **_DROPS},
    S.FAILED: {E.RESTARTED: S.STARTING, E.STOPPED: S.STOPPED, **_DROPS},
    S.DROPPING: {},
}


class DesiredState(StrEnum):
    """The state that a user wants for a version: commands write it to the catalog, ``headrace views run`` acts."""

    RUN = "run"
    STOP = "stop"
    DROP = "drop"


def next_state(state: VersionState, event: VersionEvent, label: str = "the version") -> VersionState:
    """
    :raises IllegalTransition: if the state does not allow the event.
    """
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        possible = ", ".join(TRANSITIONS[state]) or "no event"
        raise IllegalTransition(
            f"{label} is in state {state}, which does not allow the event {event}; possible: {possible}"
        ) from None
