"""Checks that the views of an answer count the same records of their common topics."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from headrace.pipeline.serving.errors import DifferentOffsets
from headrace.views.answers import AsOf


def check_same_offsets(as_of: Sequence[AsOf]) -> None:
    """
    :param as_of: of all views that a statement reads, from one snapshot.
    :raises DifferentOffsets: if two views have other offsets of a topic that both read.
    """
    for one, other in combinations(as_of, 2):
        for topic in sorted(one.offsets.keys() & other.offsets.keys()):
            ours, theirs = one.offsets[topic], other.offsets[topic]
            for partition in sorted(ours.keys() | theirs.keys()):
                first, second = ours.get(partition, 0), theirs.get(partition, 0)
                if first != second:
                    raise DifferentOffsets(
                        f"{one.view} v{one.version} counts {topic} {partition} up to {first}, and {other.view} "
                        f"v{other.version} up to {second}: ask again, or see 'headrace views status', which says why "
                        "a view has offsets of its own"
                    )
