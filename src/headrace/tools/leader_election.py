"""``headrace leader-election``: elects the preferred leaders of partitions, or any live replica."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from headrace.client.errors import BrokerError, ErrorCode
from headrace.client.types import TopicPartition
from headrace.tools.shared.commands import DONE, Output, Table, UsageError, connect, int32, new_parser, read_json, run
from headrace.tools.shared.partition_files import entries
from headrace.tools.shared.topic_names import partition_names

_EXAMPLES = """
headrace leader-election --election-type preferred --all-topic-partitions
headrace leader-election --election-type unclean --topic orders --partition 0
headrace leader-election --election-type preferred --path-to-json-file partitions.json
partitions.json: {"partitions": [{"topic": "orders", "partition": 0}]}
"""


def main(arguments: Sequence[str]) -> int:
    return run(parser(), arguments, elect)


def parser() -> ArgumentParser:
    parser = new_parser("leader-election", "Elect leaders of partitions.", _EXAMPLES)
    parser.add_argument("--admin.config", dest="command_config", metavar="FILE", type=Path, default=SUPPRESS,
                        help="the old name of --command-config")  # fmt: skip
    parser.add_argument(
        "--election-type",
        required=True,
        type=str.lower,
        choices=["preferred", "unclean"],
        help="preferred: the first replica becomes leader; unclean: any live replica becomes leader of a partition "
        "without a leader, which may lose records",
    )
    parser.add_argument("--topic", metavar="NAME", help="the topic of one partition")
    parser.add_argument("--partition", metavar="N", type=int32, help="the partition of that topic")
    parser.add_argument("--all-topic-partitions", action="store_true", help="all partitions that need an election")
    parser.add_argument("--path-to-json-file", metavar="FILE", type=Path, help="the partitions of a file")
    return parser


def elect(options: Namespace, out: Output) -> int:
    wanted = _wanted(options)
    with connect(options) as admin:
        results = admin.elect_leaders(options.election_type, wanted)
    elected = sorted(results.ok)
    errors = {at: error for at, error in sorted(results.errors.items()) if not _is_needless(error)}
    needless = sorted(set(results.errors) - errors.keys())
    kind = options.election_type.upper()
    lines = []
    if elected:
        lines.append(f"Successfully completed leader election ({kind}) for partitions {partition_names(elected)}")
    if needless:
        lines.append(f"Valid replica already elected for partitions {partition_names(needless)}")
    lines += [f"Error completing leader election ({kind}) for partition: {at}: {error}" for at, error in errors.items()]
    outcomes = dict.fromkeys(elected, "elected") | dict.fromkeys(needless, "not needed")
    outcomes |= {at: str(error) for at, error in errors.items()}
    out.show(
        [{"topic": at.topic, "partition": at.partition, "outcome": outcome} for at, outcome in outcomes.items()],
        lines,
        Table(("TOPIC", "PARTITION", "OUTCOME"), [(*at, outcome) for at, outcome in outcomes.items()]),
    )
    if errors:
        out.complain(f"{len(errors)} replica(s) could not be elected")
    return 1 if errors else DONE


def _wanted(options: Namespace) -> list[TopicPartition] | None:
    """The partitions of the options; None means all.

    Without an option ``preferred-replica-election`` means all partitions; its ``all_topic_partitions`` is None.
    """
    if options.all_topic_partitions is None:
        options.all_topic_partitions = options.path_to_json_file is None
    ways = [options.topic is not None, options.all_topic_partitions, options.path_to_json_file is not None]
    if sum(ways) != 1:
        choices = "topic, all-topic-partitions, path-to-json-file"
        raise UsageError(f"One and only one of the following options is required: {choices}")
    if (options.topic is None) != (options.partition is None):
        raise UsageError("Missing required option(s): topic and partition go together")
    if options.topic is not None:
        return [TopicPartition(options.topic, options.partition)]
    if options.all_topic_partitions:
        return None
    path = options.path_to_json_file
    found = [partition for partition, _ in entries(read_json(path), str(path))]
    if not found:
        raise UsageError("Replica election data is empty")
    return found


def _is_needless(error: Exception) -> bool:
    return isinstance(error, BrokerError) and error.code is ErrorCode.election_not_needed
