"""Finds the serving versions that readers do not see at the same offsets as other views of the same topics, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.pipeline.common_cut.eligibility import why_outside
from headrace.pipeline.maintenance.ways import stored_way
from headrace.pipeline.progress.offsets import is_before
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.serving.catalog import Offsets, Progress, Version, VersionKey


def own_offsets(
    serving: Sequence[Version], progress: Mapping[VersionKey, Progress], *, same_offsets: bool
) -> dict[VersionKey, str]:
    """For each such version: why it has offsets of its own.

    :param serving: the versions that readers see.
    :param progress: as of one snapshot.
    :param same_offsets: the setting of the project. If it is false, nothing is said.
    """
    found: dict[VersionKey, str] = {}
    for version in serving if same_offsets else ():
        others = [each for each in serving if each is not version and _common(version, each, progress)]
        why = _why_outside(version)
        if others and why is not None:
            found[version.key] = why
        for other in others if why is None else ():
            both = _common(other, version, progress)
            if both is not None and _why_outside(other) is None and not is_before(*both):
                found[version.key] = f"it is behind {other.label}, and is at its offsets again when it has caught up"
    return found


def _why_outside(version: Version) -> str | None:
    trigger_ms = ViewDefinition.from_dict(version.definition).trigger_ms
    return why_outside(stored_way(version.definition), trigger_ms, same_offsets=True)


def _common(one: Version, other: Version, progress: Mapping[VersionKey, Progress]) -> tuple[Offsets, Offsets] | None:
    """The offsets of both for their common topics; None if they have none."""
    if one.key not in progress or other.key not in progress:
        return None
    ours, theirs = progress[one.key].offsets, progress[other.key].offsets
    common = ours.keys() & theirs.keys()
    if not common:
        return None
    return {topic: ours[topic] for topic in common}, {topic: theirs[topic] for topic in common}
