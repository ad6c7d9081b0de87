"""The states of a group of the classic protocol, and which may follow which.

::

    Empty ──> PreparingRebalance ──> CompletingRebalance ──> Stable
      ^            │   ^                    │                  │
      └────────────┘   └────────────────────┴──────────────────┘        any of them ──> Dead

A group is *Empty* while it has no members (it may have offsets). In *PreparingRebalance* members are asked to join; in
*CompletingRebalance* all have joined and the leader works out who reads what; *Stable* means that everybody was told.
*Dead* is a group that is gone from this coordinator.
"""

from enum import Enum


class State(Enum):
    """The values are Kafka's words, which clients see and filter by."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


#: From each state, which states may follow. Anything else is our mistake, not a client's.
NEXT: dict[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.PREPARING, State.DEAD}),
    State.PREPARING: frozenset({State.COMPLETING, State.EMPTY, State.DEAD}),
    State.COMPLETING: frozenset({State.STABLE, State.PREPARING, State.DEAD}),
    State.STABLE: frozenset({State.PREPARING, State.DEAD}),
    State.DEAD: frozenset(),
}
