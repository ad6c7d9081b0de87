"""The life of a version of a view, as a table.

::

    starting -> replaying <-> caught_up -> serving <-> standby
        (each of them may fail or stop; what failed or stopped may start again)
    all but serving -> dropping -> gone

``serving`` and ``standby`` both run: a standby is kept up to date so that a rollback finds it as good as new. A version
that fails while it serves goes on being read, and its view still points at it; started again it catches up like any
other. The one that serves cannot be dropped: switch away first.
"""

from __future__ import annotations

from enum import StrEnum

from headrace.pipeline.serving.errors import IllegalTransition


class State(StrEnum):
    STARTING = "starting"
    REPLAYING = "replaying"
    CAUGHT_UP = "caught_up"
    SERVING = "serving"
    STANDBY = "standby"
    STOPPED = "stopped"
    FAILED = "failed"
    DROPPING = "dropping"


class Event(StrEnum):
    STARTED = "started"
    CAUGHT_UP = "caught_up"
    FELL_BEHIND = "fell_behind"
    SWITCHED_TO = "switched_to"
    SWITCHED_AWAY = "switched_away"
    STOPPED = "stopped"
    FAILED = "failed"
    RESTARTED = "restarted"
    DROPPED = "dropped"


_ENDS = {Event.STOPPED: State.STOPPED, Event.FAILED: State.FAILED}
_DROPS = {Event.DROPPED: State.DROPPING}

#: From each state, what each event leads to. Anything else is refused.
TRANSITIONS: dict[State, dict[Event, State]] = {
    State.STARTING: {Event.STARTED: State.REPLAYING, **_ENDS, **_DROPS},
    State.REPLAYING: {Event.CAUGHT_UP: State.CAUGHT_UP, **_ENDS, **_DROPS},
    State.CAUGHT_UP: {Event.FELL_BEHIND: State.REPLAYING, Event.SWITCHED_TO: State.SERVING, **_ENDS, **_DROPS},
    State.SERVING: {Event.SWITCHED_AWAY: State.STANDBY, **_ENDS},
    State.STANDBY: {Event.SWITCHED_TO: State.SERVING, **_ENDS, **_DROPS},
    State.STOPPED: {Event.RESTARTED: State.STARTING, **_DROPS},
    State.FAILED: {Event.RESTARTED: State.STARTING, Event.STOPPED: State.STOPPED, **_DROPS},
    State.DROPPING: {},
}


class Wanted(StrEnum):
    """What a user wants of a version; ``headrace views run`` sees to it."""

    RUN = "run"
    STOP = "stop"
    DROP = "drop"


def next_state(state: State, event: Event, who: str = "the version") -> State:
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        possible = ", ".join(TRANSITIONS[state]) or "nothing"
        raise IllegalTransition(f"{who} is {state}: {event} is not possible now, but {possible} is") from None
