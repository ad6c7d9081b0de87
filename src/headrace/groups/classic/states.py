"""The states of a classic group, and the transitions between them.

::

    Empty ──> PreparingRebalance ──> CompletingRebalance ──> Stable
      ^            │   ^                    │                  │
      └────────────┘   └────────────────────┴──────────────────┘        any of them ──> Dead

- *Empty*: the group has no members. The group may still have committed offsets.
- *PreparingRebalance*: the coordinator waits until all members have joined.
- *CompletingRebalance*: all members have joined, and the leader computes the assignment.
- *Stable*: the coordinator has the assignment and sends each member its part.
- *Dead*: this coordinator has unloaded the group.
"""

from enum import Enum


class ClassicGroupState(Enum):
    """The state of a classic group. The values are Kafka's words; clients see them and filter by them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


#: From each state, the states that may follow. Any other transition is a mistake in our code, not a client's.
NEXT: dict[ClassicGroupState, frozenset[ClassicGroupState]] = {
    ClassicGroupState.EMPTY: frozenset({ClassicGroupState.PREPARING, ClassicGroupState.DEAD}),
    ClassicGroupState.PREPARING: frozenset(
        {ClassicGroupState.COMPLETING, ClassicGroupState.EMPTY, ClassicGroupState.DEAD}
    ),
    ClassicGroupState.COMPLETING: frozenset(
        {ClassicGroupState.STABLE, ClassicGroupState.PREPARING, ClassicGroupState.DEAD}
    ),
    ClassicGroupState.STABLE: frozenset({ClassicGroupState.PREPARING, ClassicGroupState.DEAD}),
    ClassicGroupState.DEAD: frozenset(),
}
