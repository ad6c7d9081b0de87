"""``headrace topics``: creates, deletes, lists, describes and extends topics, with Kafka's flags and output."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.client.admin.types import ConfigResource, NewTopic, Reassignment
from headrace.client.errors import NotAuthorized, TopicExists, UnsupportedByBroker
from headrace.client.types import TopicPartition
from headrace.tools.shared.commands import (
    CommandError,
    Output,
    Table,
    UsageError,
    chosen_action,
    connect,
    int32,
    new_parser,
    run,
)
from headrace.tools.shared.topic_names import matching, parse_ids, parse_topic_id, topic_id_text, topic_pattern
from headrace.tools.topics import descriptions as topic_descriptions
from headrace.tools.topics.descriptions import Described, Filters

if TYPE_CHECKING:
    from headrace import Admin

_ACTIONS = ("create", "delete", "list", "describe", "alter")
_COLLISIONS = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. "
    "To avoid issues it is best to use either, but not both."
)
#: Options, with the actions that accept them.
_GOES_WITH = {
    "config": ("create",),
    "replication_factor": ("create",),
    "if_not_exists": ("create",),
    "partitions": ("create", "alter"),
    "replica_assignment": ("create", "alter"),
    "if_exists": ("alter", "delete", "describe"),
    "topic_id": ("describe",),
    "exclude_internal": ("list", "describe"),
    "under_replicated_partitions": ("describe",),
    "unavailable_partitions": ("describe",),
    "under_min_isr_partitions": ("describe",),
    "at_min_isr_partitions": ("describe",),
    "topics_with_overrides": ("describe",),
    "partition_size_limit_per_response": ("describe",),
}

_EXAMPLES = """
headrace topics --create --topic orders --partitions 3 --config retention.ms=86400000
headrace topics --list --exclude-internal
headrace topics --describe --topic orders --json
headrace topics --describe --under-replicated-partitions
headrace topics --alter --topic orders --partitions 6
headrace topics --delete --topic 'test-.*' --if-exists
"""


def main(arguments: Sequence[str]) -> int:
    return run(parser(), arguments, _work)


def parser() -> ArgumentParser:
    parser = new_parser("topics", "Create, delete, list, describe and extend topics.", _EXAMPLES)
    parser.add_argument("--create", action="store_true", help="make a topic")
    parser.add_argument("--delete", action="store_true", help="delete topics")
    parser.add_argument("--list", action="store_true", help="names of topics")
    parser.add_argument("--describe", action="store_true", help="show partitions, replicas and settings of topics")
    parser.add_argument("--alter", action="store_true", help="add partitions to topics")
    parser.add_argument(
        "--topic", metavar="NAME", help="the topic; except with --create, a regular expression for whole names"
    )
    parser.add_argument("--topic-id", metavar="ID", help="--describe: the topic with this id")
    parser.add_argument("--partitions", metavar="N", type=int32, help="the total number of partitions")
    parser.add_argument("--replication-factor", metavar="N", type=int, help="the number of replicas of each partition")
    parser.add_argument(
        "--replica-assignment",
        metavar="0:1,1:2,...",
        help="the brokers of each partition, instead of numbers; with --alter of all partitions, old and new",
    )
    parser.add_argument(
        "--config", metavar="NAME=VALUE", action="append", default=[], help="a setting of the topic; may be repeated"
    )
    parser.add_argument("--if-not-exists", action="store_true", help="--create: do not fail if the topic exists")
    parser.add_argument("--if-exists", action="store_true", help="do not fail if the topic does not exist")
    parser.add_argument("--exclude-internal", action="store_true", help="leave out internal topics")
    parser.add_argument(
        "--under-replicated-partitions", action="store_true", help="only partitions with replicas that are not in sync"
    )
    parser.add_argument("--unavailable-partitions", action="store_true", help="only partitions without a leader")
    parser.add_argument(
        "--under-min-isr-partitions", action="store_true", help="only partitions below min.insync.replicas"
    )
    parser.add_argument(
        "--at-min-isr-partitions", action="store_true", help="only partitions with exactly min.insync.replicas"
    )
    parser.add_argument(
        "--topics-with-overrides",
        action="store_true",
        help="only topics with settings of their own, without their partitions",
    )
    parser.add_argument(
        "--partition-size-limit-per-response",
        metavar="N",
        type=int32,
        help="accepted and ignored: the broker always answers in one response",
    )
    return parser


def _work(options: Namespace, out: Output) -> None:
    action = chosen_action(options, _ACTIONS)
    for name, actions in _GOES_WITH.items():
        if getattr(options, name) and action not in actions:
            raise UsageError(f"--{name.replace('_', '-')} goes with --{' and --'.join(actions)} only")
    if action in ("create", "delete", "alter") and not options.topic:
        raise UsageError(f"--{action} needs --topic")
    with connect(options) as admin:
        _DO[action](admin, options, out)


# ------------------------------------------------------------------------------------------------------------- change


def _create(admin: Admin, options: Namespace, out: Output) -> None:
    topic = new_topic(options)
    if "." in topic.name or "_" in topic.name:
        out.say(_COLLISIONS)
    try:
        made = admin.create_topics([topic]).value(topic.name)
    except TopicExists:
        if not options.if_not_exists:
            raise
        out.show({"topic": topic.name, "created": False}, ())
        return
    out.show(
        {
            "topic": made.name,
            "created": True,
            "topicId": topic_id_text(made.id),
            "partitionCount": made.num_partitions,
            "replicationFactor": made.replication_factor,
        },
        f"Created topic {made.name}.",
    )


def new_topic(options: Namespace) -> NewTopic:
    """The new topic of the options."""
    assignments: dict[int, list[int]] = {}
    if options.replica_assignment is not None:
        if options.partitions is not None or options.replication_factor is not None:
            raise UsageError("--replica-assignment cannot be used with --partitions or --replication-factor")
        assignments = dict(enumerate(parse_assignment(options.replica_assignment)))
    if options.partitions is not None and options.partitions < 1:
        raise UsageError("The partitions must be greater than 0")
    if options.replication_factor is not None and not 0 < options.replication_factor <= 32_767:
        raise UsageError("The replication factor must be between 1 and 32767 inclusive")
    return NewTopic(
        options.topic, options.partitions or -1, options.replication_factor or -1, parse_configs(options.config),
        assignments,
    )  # fmt: skip


def parse_configs(texts: Sequence[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    if not all(equals and name.strip() for name, equals, _ in pairs):
        raise UsageError('all configs to be added must be in the format "key=val"')
    return {name.strip(): value.strip() for name, _, value in pairs}


def parse_assignment(text: str) -> list[list[int]]:
    """Parses the brokers of each partition, ``0:1,1:2``."""
    partitions = [parse_ids(brokers.replace(":", ","), "--replica-assignment") for brokers in text.split(",")]
    for index, brokers in enumerate(partitions):
        if len(set(brokers)) < len(brokers):
            raise UsageError(f"Partition replica lists may not contain duplicate entries: partition {index}")
        if len(brokers) != len(partitions[0]):
            raise UsageError(f"Partition {index} has different replication factor: {brokers}")
    return partitions


def _alter(admin: Admin, options: Namespace, out: Output) -> None:
    if options.partitions is None:
        raise UsageError("--alter needs --partitions")
    names = _names(admin, options)
    assignments = {}
    if options.replica_assignment is not None:
        wanted = parse_assignment(options.replica_assignment)
        there = admin.describe_topics(names).all()
        assignments = {name: wanted[len(topic.partitions) :] for name, topic in there.items()}
    if names:
        admin.create_partitions(dict.fromkeys(names, options.partitions), assignments=assignments).all()
    out.show([{"topic": name, "partitionCount": options.partitions} for name in names], ())


def _delete(admin: Admin, options: Namespace, out: Output) -> None:
    names = _names(admin, options)
    if names:
        results = admin.delete_topics(names)
        results.all()
    out.show([{"topic": name, "deleted": True} for name in names], ())


# --------------------------------------------------------------------------------------------------------------- show


def _list(admin: Admin, options: Namespace, out: Output) -> None:
    pattern = topic_pattern(options.topic) if options.topic else None
    names = matching(admin.list_topics(include_internal=not options.exclude_internal), pattern)
    out.show(names, names, Table(["TOPIC"], [[name] for name in names]))


def _describe(admin: Admin, options: Namespace, out: Output) -> None:
    filters = Filters(
        options.under_replicated_partitions,
        options.unavailable_partitions,
        options.under_min_isr_partitions,
        options.at_min_isr_partitions,
        options.topics_with_overrides,
    )
    names = _names(admin, options)
    topics = admin.describe_topics(names).ok if names else {}  # A topic may have been deleted meanwhile.
    configs = admin.describe_configs([ConfigResource("topic", name) for name in topics]).ok if topics else {}
    brokers = frozenset(broker.id for broker in admin.describe_cluster().brokers)
    moves = _reassignments(admin)
    described = [
        Described(topic, configs.get(ConfigResource("topic", name), {}), moves, brokers)
        for name, topic in topics.items()
    ]
    shown = [each for each in described if topic_descriptions.is_shown(each, filters) or each.partitions(filters)]
    if out.is_terminal:
        for table in topic_descriptions.tables(shown, filters):
            out.show(None, (), table)
        return
    out.show(
        [topic_descriptions.value(each, filters) for each in shown],
        (line for each in shown for line in topic_descriptions.lines(each, filters)),
    )


def _reassignments(admin: Admin) -> dict[TopicPartition, Reassignment]:
    try:
        return admin.list_partition_reassignments()
    except (UnsupportedByBroker, NotAuthorized):
        return {}


def _names(admin: Admin, options: Namespace) -> list[str]:
    """The topics that the options select."""
    known = admin.list_topics(include_internal=not options.exclude_internal)
    if options.topic_id:
        wanted = parse_topic_id(options.topic_id)
        names = [name for name, topic in known.items() if topic.id == wanted]
        missing = f"TopicId '{options.topic_id}' does not exist as expected"
    else:
        names = matching(known, topic_pattern(options.topic) if options.topic else None)
        missing = f"Topic '{options.topic}' does not exist as expected"
    if not names and (options.topic or options.topic_id) and not options.if_exists:
        raise CommandError(missing)
    return names


_DO = {"create": _create, "delete": _delete, "list": _list, "describe": _describe, "alter": _alter}
