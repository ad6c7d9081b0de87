"""``headrace get-offsets``: prints first, last or time-based offsets of partitions, one line each: ``topic:0:42``."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

from headrace.client.admin.types import OffsetSpec
from headrace.client.types import TopicPartition
from headrace.tools.get_offsets.partition_rules import Rule, matches, parse_rules, rules_of
from headrace.tools.shared.commands import (
    DONE,
    FAILED,
    CommandError,
    Output,
    Table,
    UsageError,
    connect,
    int64,
    new_parser,
    run,
)

if TYPE_CHECKING:
    from headrace import Admin

#: Kafka's names, and the numbers that older versions of Kafka's tool use for them.
_NAMED_TIMES = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}
_EXAMPLES = """
headrace get-offsets --topic orders
headrace get-offsets --topic-partitions 'orders:0-3,pay.*' --time earliest
headrace get-offsets --topic orders --partitions 0,2 --time 1700000000000
"""


def main(arguments: Sequence[str]) -> int:
    return run(parser(), arguments, _work)


def parser() -> ArgumentParser:
    parser = new_parser(
        "get-offsets",
        "Show offsets of partitions, one line each: topic:partition:offset.",
        _EXAMPLES,
        has_broker_list=True,
    )
    parser.add_argument("--topic", metavar="NAME", help="a regular expression for whole names (default all topics)")
    parser.add_argument("--partitions", metavar="0,1,...", help="which partitions (default all)")
    parser.add_argument(
        "--topic-partitions",
        metavar="RULE,RULE,...",
        help="instead of these two: a:1 (one), a:0-3 (0, 1, 2), a:5- (from 5 on), a:-3 (below 3), a (all), :0",
    )
    parser.add_argument(
        "--time",
        metavar="WHEN",
        default="latest",
        help="latest (-1), earliest (-2), max-timestamp (-3), earliest-local (-4), latest-tiered (-5), "
        "earliest-pending-upload (-6), or a time in ms: the first record at or after it (default latest)",
    )
    parser.add_argument("--exclude-internal-topics", action="store_true", help="leave out internal topics")
    return parser


def _work(options: Namespace, out: Output) -> int:
    if options.topic_partitions is not None and (options.topic is not None or options.partitions is not None):
        raise UsageError("--topic-partitions cannot be used with --topic or --partitions")
    spec = parse_time(options.time)
    if options.topic_partitions is not None:
        rules = parse_rules(options.topic_partitions)
    else:
        rules = rules_of(options.topic, options.partitions)
    with connect(options) as admin:
        partitions = _partitions(admin, rules, options.exclude_internal_topics)
        results = admin.list_offsets(dict.fromkeys(partitions, spec))
    for partition, error in results.errors.items():
        out.complain(f"Skip getting offsets for topic-partition {partition} due to error: {error}")
    offsets = sorted((*at, found.offset) for at, found in results.ok.items() if found.offset >= 0)
    out.show(
        [dict(zip(("topic", "partition", "offset"), row, strict=True)) for row in offsets],
        (f"{topic}:{partition}:{offset}" for topic, partition, offset in offsets),
        Table(("TOPIC", "PARTITION", "OFFSET"), offsets),
    )
    return FAILED if results.errors else DONE


def parse_time(text: str) -> OffsetSpec:
    number = _NAMED_TIMES.get(text)
    if number is None:
        try:
            number = int64(text)
        except (ValueError, ArgumentTypeError):
            names = " / ".join(f"{number} or {name}" for name, number in _NAMED_TIMES.items())
            raise UsageError(
                f"Malformed time argument {text}. Please use {names}, or a specified long format timestamp"
            ) from None
    by_number = {number: name.replace("-", "_") for name, number in _NAMED_TIMES.items()}
    name = by_number.get(number)
    known: tuple[OffsetSpec, ...] = get_args(get_args(OffsetSpec)[0])
    return next((spec for spec in known if spec == name), number)


def _partitions(admin: Admin, rules: Sequence[Rule], exclude_internal: bool) -> list[TopicPartition]:
    listed = admin.list_topics(include_internal=not exclude_internal)
    names = [name for name in listed if any(rule.matches_topic(name) for rule in rules)]
    topics = admin.describe_topics(names).ok if names else {}
    found = [
        TopicPartition(name, partition.partition)
        for name, topic in topics.items()
        for partition in topic.partitions
        if matches(rules, name, partition.partition)
    ]
    if not found:
        raise CommandError("Could not match any topic-partitions with the specified filters")
    return found
