"""``headrace consumer-groups --reset-offsets`` and ``--delete-offsets``: changes and deletes committed offsets.

The command resets groups without members only: a member would overwrite the new offsets with its next commit. The
command shows the new offsets, and commits them only with ``--execute``. The strategies are in ``reset_strategies.py``.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headrace.client.errors import HeadraceError, UnknownGroup, UnknownTopic
from headrace.client.types import TopicPartition
from headrace.tools.consumer_groups.descriptions import Column, Text
from headrace.tools.consumer_groups.reset_strategies import (
    Facts,
    Plans,
    Strategy,
    csv_lines,
    parse_csv,
    parse_datetime_ms,
    plan,
    time_before_ms,
)
from headrace.tools.shared.commands import DONE, FAILED, CommandError, Output, UsageError, read_text
from headrace.tools.shared.topic_names import parse_topic_partitions

if TYPE_CHECKING:
    from headrace import Admin

_STRATEGIES = (
    "shift_by", "to_offset", "to_earliest", "to_current", "to_latest", "by_duration", "to_datetime", "from_file",
)  # fmt: skip
_INACTIVE = ("Empty", "Dead")
_WARNING = "WARN: No action will be performed as the --execute option is missing. Add --dry-run to confirm that."


def strategy_of(options: Namespace) -> Strategy:
    given = [name for name in _STRATEGIES if getattr(options, name) is not None and getattr(options, name) is not False]
    if len(given) != 1:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in _STRATEGIES)
        raise UsageError(f"Option '--reset-offsets' requires one of the following scenarios: {names}")
    match given[0]:
        case "to_datetime":
            return Strategy("at_time", parse_datetime_ms(options.to_datetime))
        case "by_duration":
            return Strategy("at_time", time_before_ms(options.by_duration, int(time.time() * 1000)))
        case "to_offset":
            return Strategy("to_offset", options.to_offset)
        case "shift_by":
            return Strategy("shift_by", options.shift_by)
        case "to_earliest":
            return Strategy("to_earliest")
        case "to_latest":
            return Strategy("to_latest")
        case "to_current":
            return Strategy("to_current")
    return Strategy("from_file")


def check_reset(options: Namespace) -> None:
    if options.execute and options.dry_run:
        raise UsageError("Option --reset-offsets only accepts one of --execute and --dry-run")
    if not options.topic and not options.all_topics and options.from_file is None:
        raise UsageError("One of the reset scopes should be defined: --all-topics, --topic.")
    if options.topic and options.all_topics:
        raise UsageError("give either --all-topics or --topic, not both")


def reset(admin: Admin, groups: Sequence[str], options: Namespace, out: Output) -> int:
    strategy = strategy_of(options)
    of_file: Plans = {}
    if options.from_file is not None:
        of_file = parse_csv(read_text(options.from_file), str(options.from_file), groups)
    if not options.execute and not options.dry_run:
        out.complain(_WARNING)
    states = admin.describe_groups(groups)
    plans: dict[str, dict[TopicPartition, int]] = {}
    code = DONE
    for group in groups:
        found = states[group]
        if isinstance(found, HeadraceError) and not isinstance(found, UnknownGroup):
            raise found
        state = "Dead" if isinstance(found, HeadraceError) else found.state
        if state not in _INACTIVE:
            out.complain(
                f"Assignments can only be reset if the group '{group}' is inactive, but the current state is {state}."
            )
            code = FAILED
            continue
        plans[group] = _plan_of(admin, group, strategy, options, of_file, out)
    if options.execute:
        for group, offsets in plans.items():
            if offsets:
                admin.alter_group_offsets(group, offsets).all()
    _show(plans, options, out)
    return code


def _plan_of(
    admin: Admin, group: str, strategy: Strategy, options: Namespace, of_file: Plans, out: Output
) -> dict[TopicPartition, int]:
    wanted = of_file.get(group, {})
    committed = {}
    if strategy.needs_committed or options.all_topics:
        committed = {at: found.offset for at, found in admin.list_group_offsets(group).items()}
    if strategy.kind == "from_file":
        partitions = _existing(admin, wanted)
    elif options.all_topics:
        partitions = _existing(admin, committed)
    else:
        partitions = named_partitions(admin, options.topic)
    if not partitions:
        return {}
    earliest = admin.list_offsets(dict.fromkeys(partitions, "earliest")).all()
    latest = admin.list_offsets(dict.fromkeys(partitions, "latest")).all()
    at_time = admin.list_offsets(dict.fromkeys(partitions, strategy.number)).all() if strategy.needs_time else {}
    facts = Facts(
        {at: found.offset for at, found in earliest.items()},
        {at: found.offset for at, found in latest.items()},
        committed,
        {at: found.offset for at, found in at_time.items() if found.offset >= 0},
    )
    for topic, index in partitions if strategy.needs_time else ():
        if TopicPartition(topic, index) not in facts.at_time:
            out.note(f"\nWarn: Partition {index} from topic {topic} is empty. Falling back to latest known offset.")
    offsets, warnings = plan(strategy, partitions, facts, wanted)
    for warning in warnings:
        out.complain(warning)
    return offsets


def named_partitions(admin: Admin, topics: Iterable[str]) -> list[TopicPartition]:
    """The partitions that ``--topic a --topic b:0,1`` name; all of them must exist."""
    wanted = [parse_topic_partitions(text) for text in topics]
    described = admin.describe_topics([topic for topic, _ in wanted]).all()
    return _existing(
        admin,
        {
            TopicPartition(topic, index): None
            for topic, indexes in wanted
            for index in (range(len(described[topic].partitions)) if indexes is None else indexes)
        },
    )


def _existing(admin: Admin, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """The same partitions, after the check that they exist."""
    wanted = sorted(partitions)
    if not wanted:
        return []
    there = {
        TopicPartition(name, each.partition)
        for name, topic in admin.describe_topics({at.topic for at in wanted}).ok.items()
        for each in topic.partitions
    }
    missing = [at for at in wanted if at not in there]
    if missing:
        raise CommandError(f'The partitions "{",".join(map(str, missing))}" do not exist')
    return wanted


def _show(plans: Plans, options: Namespace, out: Output) -> None:
    rows = [(group, *at, offset) for group, offsets in plans.items() for at, offset in offsets.items()]
    text = Text([Column("GROUP"), Column("TOPIC"), Column("PARTITION", 10), Column("NEW-OFFSET", is_last=True)], rows)
    value = [
        {"group": group, "topic": topic, "partition": partition, "newOffset": offset}
        for group, topic, partition, offset in rows
    ]
    if options.export:
        out.show(value, csv_lines(plans, with_group=len(options.group) != 1))
    else:
        out.show(value, text.lines(), text.table())


# -------------------------------------------------------------------------------------------------------------- delete


def delete_offsets(admin: Admin, options: Namespace, out: Output) -> int:
    (group,) = options.group
    partitions, outcomes = _to_forget(admin, options.topic)
    failed: HeadraceError | None = None
    if partitions:
        try:
            results = admin.delete_group_offsets(group, partitions)
            outcomes |= {(at.topic, at.partition): error for at, error in results.items()}
        except HeadraceError as error:
            failed = error
            outcomes |= {(at.topic, at.partition): error for at in partitions}
    if failed is not None:
        out.complain(f"Encountered some unknown error: {failed}")
    elif any(outcomes.values()):
        out.complain("Encountered some partition-level error, see the follow-up details.")
    else:
        out.say(f"Request succeeded for deleting offsets from group {group}.")
    rows = [
        (topic, index, "Successful" if error is None else f"Error: {error}")
        for (topic, index), error in sorted(outcomes.items(), key=lambda item: (item[0][0], item[0][1] or 0))
    ]
    text = Text([Column("TOPIC"), Column("PARTITION", 10), Column("STATUS", is_last=True)], rows)
    value = [{"topic": topic, "partition": index, "status": status} for topic, index, status in rows]
    out.show(value, text.lines(), text.table())
    return FAILED if any(outcomes.values()) else DONE


_Outcomes = dict[tuple[str, int | None], HeadraceError | None]


def _to_forget(admin: Admin, topics: Iterable[str]) -> tuple[list[TopicPartition], _Outcomes]:
    """The partitions whose offsets are deleted, and the topics that do not exist."""
    partitions: list[TopicPartition] = []
    missing: _Outcomes = {}
    for topic, indexes in map(parse_topic_partitions, topics):
        if indexes is None:
            described = admin.describe_topics([topic])[topic]
            if isinstance(described, UnknownTopic):
                missing[topic, None] = described
                continue
            if isinstance(described, HeadraceError):
                raise described
            indexes = [each.partition for each in described.partitions]
        partitions += [TopicPartition(topic, index) for index in indexes]
    return partitions, missing
