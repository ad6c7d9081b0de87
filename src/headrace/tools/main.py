"""``headrace``: one command, with the others below it.

The commands are the modules of ``COMMANDS``, loaded when they are called, so that starting a broker does not pay for
the tools. Exit codes: 0 done, 1 failed, 2 wrong use or cannot start, 130 stopped by Ctrl-C.
"""

import sys
from importlib import import_module

from headrace import __version__

#: Each command, the module that has its ``main(arguments) -> exit code`` and its ``parser()``, and what it is for.
COMMANDS = {
    "start": ("headrace.tools.start.command", "start a broker"),
    "zookeeper": ("headrace.tools.zookeeper", "serve a znode tree on ZooKeeper's protocol"),
    "zookeeper-shell": ("headrace.tools.zookeeper_shell.command", "look at and change the znodes of a ZooKeeper"),
    "console-producer": ("headrace.tools.console_producer.command", "send lines as records"),
    "console-consumer": ("headrace.tools.console_consumer.command", "show the records of topics"),
    "topics": ("headrace.tools.topics.command", "create, delete, list, describe and widen topics"),
    "producer-perf-test": ("headrace.tools.producer_perf_test", "measure how fast records are produced"),
    "consumer-perf-test": ("headrace.tools.consumer_perf_test", "measure how fast records are consumed"),
    "configs": ("headrace.tools.configs.command", "look at and change settings of topics, brokers and groups"),
    "consumer-groups": (
        "headrace.tools.consumer_groups.command",
        "look at consumer groups, reset their offsets, delete them",
    ),
    "delete-records": ("headrace.tools.delete_records", "delete the oldest records of partitions"),
    "get-offsets": ("headrace.tools.get_offsets.command", "show where partitions begin and end"),
    "log-dirs": ("headrace.tools.log_dirs", "show what partitions take on the disks of brokers"),
    "transactions": ("headrace.tools.transactions.command", "look at transactions, and end those that hang"),
    "reassign-partitions": (
        "headrace.tools.reassign_partitions.command",
        "move partitions between brokers and log dirs",
    ),
    "mirror-maker": ("headrace.tools.mirror_maker", "copy topics to another cluster, exactly once"),
    "leader-election": ("headrace.tools.leader_election", "elect leaders of partitions"),
    "broker-api-versions": ("headrace.tools.broker_api_versions", "show which requests brokers speak"),
    "views": (
        "headrace.tools.views.command",
        "make, run, look at and change views: queries kept as SQL tables by Spark",
    ),
    "query": ("headrace.tools.query", "ask views in SQL"),
    "dump-log": ("headrace.tools.dump_log.command", "show what is in the files of a partition"),
    "completion": ("headrace.tools.completion", "make a shell complete commands and options"),
}


def main() -> None:
    arguments = sys.argv[1:]
    if arguments and arguments[0] in COMMANDS:
        command, *rest = arguments
        try:
            sys.exit(import_module(COMMANDS[command][0]).main(rest))
        except KeyboardInterrupt:  # before the command could see to it
            sys.exit(130)
    if arguments in (["--version"], ["-V"]):
        sys.stdout.write(f"headrace {__version__}\n")
        sys.exit(0)
    wants_help = not arguments or arguments[0] in ("--help", "-h", "help")
    stream = sys.stdout if wants_help else sys.stderr
    if not wants_help:
        stream.write(f"headrace: there is no command {arguments[0]!r}{_nearest(arguments[0])}\n\n")
    stream.write("usage: headrace COMMAND [OPTIONS]\n\ncommands:\n")
    for name, (_, purpose) in COMMANDS.items():
        stream.write(f"  {name:<24}{purpose}\n")
    stream.write("\n'headrace COMMAND --help' says more of each.\n")
    sys.exit(0 if wants_help and arguments else 2)


def _nearest(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, COMMANDS, n=1)
    return f"; did you mean {near[0]}?" if near else ""
