"""Decides the new offsets of ``headrace consumer-groups --reset-offsets``: strategies, and files of offsets. No I/O.

===================  ================================================================================================
``--to-earliest``    the first record of the partition
``--to-latest``      the end of the partition
``--to-current``     the committed offset; the end, if the group has committed none
``--to-offset N``    N
``--shift-by N``     N records later, earlier if negative; an error if the group has no committed offset
``--to-datetime T``  the first record at or after T; the end, if there is none
``--by-duration D``  the same for the time D before now
``--from-file F``    the offsets of the file
===================  ================================================================================================

The new offset is always within the partition: a smaller offset becomes the first, a larger one becomes the end, and the
command prints a warning.

A file has one line per partition: ``topic,partition,offset`` for one group, ``group,topic,partition,offset`` for
several. ``--export`` prints such lines.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import StringIO
from typing import Literal, NamedTuple

from headrace.client.offset_reset import parse_duration_ms
from headrace.client.types import TopicPartition
from headrace.tools.shared.commands import CommandError, UsageError

StrategyKind = Literal["to_earliest", "to_latest", "to_current", "to_offset", "shift_by", "at_time", "from_file"]


class Strategy(NamedTuple):
    """The strategy of a reset. ``number`` is an offset, a distance or a time in ms."""

    kind: StrategyKind
    number: int = 0

    @property
    def needs_committed(self) -> bool:
        return self.kind in ("to_current", "shift_by")

    @property
    def needs_time(self) -> bool:
        return self.kind == "at_time"


@dataclass(frozen=True)
class Facts:
    """The offsets of the partitions that are reset."""

    earliest: Mapping[TopicPartition, int] = field(default_factory=dict)
    latest: Mapping[TopicPartition, int] = field(default_factory=dict)
    committed: Mapping[TopicPartition, int] = field(default_factory=dict)
    #: The offset of the first record at or after the wanted time, if there is one.
    at_time: Mapping[TopicPartition, int] = field(default_factory=dict)


class Plan(NamedTuple):
    #: The new offset of each partition, sorted.
    offsets: dict[TopicPartition, int]
    #: A warning for each wanted offset that is outside its partition.
    warnings: list[str]


def plan(
    strategy: Strategy,
    partitions: Iterable[TopicPartition],
    facts: Facts,
    of_file: Mapping[TopicPartition, int] | None = None,
) -> Plan:
    wanted = {partition: _wanted(strategy, partition, facts, of_file or {}) for partition in sorted(partitions)}
    offsets = {
        partition: min(max(offset, facts.earliest[partition]), facts.latest[partition])
        for partition, offset in wanted.items()
    }
    warnings = [
        f"New offset ({offset}) is {'higher than latest' if offset > offsets[partition] else 'lower than earliest'} "
        f"offset for topic partition {partition}. Value will be set to {offsets[partition]}"
        for partition, offset in wanted.items()
        if offset != offsets[partition]
    ]
    return Plan(offsets, warnings)


def _wanted(strategy: Strategy, partition: TopicPartition, facts: Facts, of_file: Mapping[TopicPartition, int]) -> int:
    latest = facts.latest[partition]
    match strategy.kind:
        case "to_earliest":
            return facts.earliest[partition]
        case "to_latest":
            return latest
        case "to_current":
            return facts.committed.get(partition, latest)
        case "to_offset":
            return strategy.number
        case "shift_by":
            if partition not in facts.committed:
                raise CommandError(
                    f"Cannot shift offset for partition {partition} since there is no current committed offset"
                )
            return facts.committed[partition] + strategy.number
        case "at_time":
            return facts.at_time.get(partition, latest)
        case "from_file":
            return of_file[partition]


# -------------------------------------------------------------------------------------------------------------- times


def parse_datetime_ms(text: str) -> int:
    """Parses ``2026-01-31T12:00:00.000``, in UTC if the text has no time zone."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or "T" not in text:
        raise UsageError(f"Error parsing timestamp {text}: write YYYY-MM-DDThh:mm:ss.sss, with a time zone or in UTC")
    return round((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000)


def time_before_ms(duration: str, now_ms: int) -> int:
    """The time that is ``PnDTnHnMnS`` before now."""
    try:
        return max(0, now_ms - parse_duration_ms(duration))
    except ValueError as error:
        raise UsageError(f"--by-duration: {error}") from None


# -------------------------------------------------------------------------------------------------------------- files

Plans = Mapping[str, Mapping[TopicPartition, int]]


def parse_csv(text: str, name: str, groups: Iterable[str]) -> dict[str, dict[TopicPartition, int]]:
    """The offsets of each group in a file.

    :param groups: the groups of the command line. If there is only one, lines without a group belong to that group.
    """
    groups = list(groups)
    plans: dict[str, dict[TopicPartition, int]] = {}
    for number, row in enumerate(csv.reader(StringIO(text), skipinitialspace=True), 1):
        if not row:
            continue
        try:
            group, topic, partition, offset = row if len(row) == 4 else (*_only(groups), *row)
            plans.setdefault(group, {})[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            raise UsageError(
                f"{name}, line {number}: write topic,partition,offset for one group, "
                "group,topic,partition,offset for several"
            ) from None
    return plans


def _only(groups: list[str]) -> tuple[str]:
    (group,) = groups
    return (group,)


def csv_lines(plans: Plans, *, with_group: bool) -> Iterator[str]:
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for group, offsets in plans.items():
        for (topic, partition), offset in offsets.items():
            writer.writerow([group, topic, partition, offset] if with_group else [topic, partition, offset])
    yield from out.getvalue().splitlines()
