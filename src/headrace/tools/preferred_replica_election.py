"""``headrace preferred-replica-election``: the older name of ``leader-election --election-type preferred``.

Kafka's tool of this name elected the preferred leaders of all partitions, or of the partitions of a file.
"""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from headrace.tools.leader_election import elect
from headrace.tools.shared.commands import new_parser, run

_EXAMPLES = """
headrace preferred-replica-election
headrace preferred-replica-election --path-to-json-file partitions.json
partitions.json: {"partitions": [{"topic": "orders", "partition": 0}]}
"""


def main(arguments: Sequence[str]) -> int:
    return run(parser(), arguments, elect)


def parser() -> ArgumentParser:
    parser = new_parser("preferred-replica-election", "Elect the preferred leaders of partitions.", _EXAMPLES)
    parser.add_argument("--admin.config", dest="command_config", metavar="FILE", type=Path, default=SUPPRESS,
                        help="the old name of --command-config")  # fmt: skip
    parser.add_argument(
        "--path-to-json-file", metavar="FILE", type=Path, help="the partitions of a file (default: all partitions)"
    )
    parser.set_defaults(election_type="preferred", topic=None, partition=None, all_topic_partitions=None)
    return parser
