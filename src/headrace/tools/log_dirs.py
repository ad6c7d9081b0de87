"""``headrace log-dirs``: prints the size of each partition in the log dirs of brokers, as Kafka's JSON."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence

from headrace.client.admin.types import LogDir
from headrace.tools.shared.commands import CommandError, Output, Table, UsageError, connect, new_parser, run
from headrace.tools.shared.topic_names import parse_ids

_HEADINGS = ("BROKER", "LOG DIR", "PARTITION", "BYTES", "OFFSET LAG", "FUTURE")
_EXAMPLES = """
headrace log-dirs --describe
headrace log-dirs --describe --broker-list 0,1 --topic-list orders,payments
headrace log-dirs --describe --json | jq '.brokers[].logDirs[].partitions[].size' | paste -sd+ | bc
"""


def main(arguments: Sequence[str]) -> int:
    return run(parser(), arguments, _work)


def parser() -> ArgumentParser:
    parser = new_parser("log-dirs", "Show the size of partitions in the log dirs of brokers.", _EXAMPLES)
    parser.add_argument("--describe", action="store_true", help="required, as in Kafka; the only action")
    parser.add_argument("--broker-list", metavar="0,1,...", default="", help="the brokers (default: all)")
    parser.add_argument("--topic-list", metavar="NAME,NAME,...", default="", help="the topics (default: all)")
    return parser


def _work(options: Namespace, out: Output) -> None:
    if not options.describe:
        raise UsageError("Command must include exactly one action: --describe")
    broker_ids = sorted(set(parse_ids(options.broker_list, "--broker-list"))) if options.broker_list else None
    topics = {name for name in options.topic_list.split(",") if name}
    with connect(options) as admin:
        known = [broker.id for broker in admin.describe_cluster().brokers]
        missing = [broker_id for broker_id in broker_ids or () if broker_id not in known]
        if missing:
            raise CommandError(
                f"ERROR: The given brokers do not exist from --broker-list: {_ids(missing)}. "
                f"Current existent brokers: {_ids(known)}"
            )
        if not out.is_terminal:
            out.say("Querying brokers for log directories information")
        found = admin.describe_log_dirs(broker_ids or known).all()
    if not out.is_terminal:
        out.say(f"Received log directory information from brokers {_ids(found)}")
    value = as_json(found, topics)
    out.show(value, json.dumps(value, separators=(",", ":")), Table(_HEADINGS, _rows(found, topics)))


def as_json(found: Mapping[int, Mapping[str, LogDir]], topics: set[str]) -> dict[str, object]:
    """The JSON of Kafka's tool, with its order of fields."""
    return {
        "brokers": [
            {
                "broker": broker_id,
                "logDirs": [
                    {
                        "partitions": [
                            {
                                "partition": str(partition),
                                "size": replica.size_bytes,
                                "offsetLag": replica.offset_lag,
                                "isFuture": replica.is_future,
                            }
                            for partition, replica in sorted(log_dir.replicas.items())
                            if not topics or partition.topic in topics
                        ],
                        "error": None if log_dir.error is None else str(log_dir.error),
                        "logDir": path,
                    }
                    for path, log_dir in log_dirs.items()
                ],
            }
            for broker_id, log_dirs in found.items()
        ],
        "version": 1,
    }


def _rows(found: Mapping[int, Mapping[str, LogDir]], topics: set[str]) -> list[tuple[object, ...]]:
    return [
        (broker_id, path, partition, replica.size_bytes, replica.offset_lag, "yes" if replica.is_future else "")
        for broker_id, log_dirs in found.items()
        for path, log_dir in log_dirs.items()
        for partition, replica in sorted(log_dir.replicas.items())
        if not topics or partition.topic in topics
    ]


def _ids(numbers: Sequence[int] | Mapping[int, object]) -> str:
    return ",".join(map(str, numbers))
