"""``headrace``: the command of which all others are subcommands.

``COMMANDS`` is the registry. A command's module is loaded when the command is called, so that the start of a broker
does not import the other tools. The names of Kafka's scripts work too: ``headrace kafka-topics.sh``. Exit codes: 0
done, 1 failed, 2 wrong usage or cannot start, 130 stopped by Ctrl-C.
"""

import gc
import sys
from importlib import import_module
from types import ModuleType

from headrace import __version__

#: Each command with its module, which has ``main(arguments) -> exit code`` and ``parser()``, and its purpose.
COMMANDS = {
    "start": ("headrace.tools.start.command", "start a broker"),
    "storage": ("headrace.tools.storage", "prepare the data folder of a broker, with its first users"),
    "zookeeper": ("headrace.tools.zookeeper", "serve a tree of znodes on ZooKeeper's protocol"),
    "zookeeper-shell": ("headrace.tools.zookeeper_shell.command", "show and change the znodes of a ZooKeeper"),
    "console-producer": ("headrace.tools.console_producer.command", "send the lines of standard input as records"),
    "console-consumer": ("headrace.tools.console_consumer.command", "show the records of topics"),
    "topics": ("headrace.tools.topics.command", "create, delete, list, describe and extend topics"),
    "producer-perf-test": ("headrace.tools.producer_perf_test", "measure how fast records are produced"),
    "consumer-perf-test": ("headrace.tools.consumer_perf_test", "measure how fast records are consumed"),
    "configs": ("headrace.tools.configs.command", "show and change settings of topics, brokers, groups and users"),
    "consumer-groups": (
        "headrace.tools.consumer_groups.command",
        "list and describe consumer groups, reset their offsets, delete them",
    ),
    "delete-records": ("headrace.tools.delete_records", "delete the oldest records of partitions"),
    "get-offsets": ("headrace.tools.get_offsets.command", "show the first and last offsets of partitions"),
    "log-dirs": ("headrace.tools.log_dirs", "show the size of partitions on the disks of brokers"),
    "acls": ("headrace.tools.acls.command", "list, add and remove ACLs"),
    "delegation-tokens": (
        "headrace.tools.delegation_tokens",
        "create, renew, expire and describe delegation tokens",
    ),
    "transactions": ("headrace.tools.transactions.command", "list and describe transactions, abort hanging ones"),
    "reassign-partitions": (
        "headrace.tools.reassign_partitions.command",
        "move partitions between brokers and log dirs",
    ),
    "mirror-maker": ("headrace.tools.mirror_maker", "copy topics to another cluster, exactly once"),
    "leader-election": ("headrace.tools.leader_election", "elect leaders of partitions"),
    "preferred-replica-election": (
        "headrace.tools.preferred_replica_election",
        "elect the preferred leaders of partitions; the older name of leader-election",
    ),
    "client-metrics": ("headrace.tools.client_metrics", "show and change subscriptions to metrics of clients"),
    "broker-api-versions": ("headrace.tools.broker_api_versions", "show which APIs and versions brokers support"),
    "views": (
        "headrace.tools.views.command",
        "create, run, show and change views: queries whose answers Spark keeps as SQL tables",
    ),
    "sources": (
        "headrace.tools.sources.command",
        "write the files of sources from the records of topics, and compare them",
    ),
    "query": ("headrace.tools.query.command", "query views in SQL"),
    "registry": ("headrace.tools.registry", "serve a schema registry with the API of Confluent's registry"),
    "console": ("headrace.tools.console", "serve a web console of a cluster and of views"),
    "dump-log": ("headrace.tools.dump_log.command", "show the contents of the files of a partition"),
    "completion": ("headrace.tools.completion", "print a shell script that completes commands and options"),
}


def main() -> None:
    arguments = sys.argv[1:]
    if arguments:
        arguments[0] = _without_kafka(arguments[0])
    if arguments and arguments[0] in COMMANDS:
        command, *rest = arguments
        try:
            sys.exit(_loaded(COMMANDS[command][0]).main(rest))
        except KeyboardInterrupt:  # Ctrl-C came before the command handled it.
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
        stream.write(f"  {name:<28}{purpose}\n")
    stream.write("\n'headrace COMMAND --help' shows the options of a command.\n")
    sys.exit(0 if wants_help and arguments else 2)


def _loaded(module: str) -> ModuleType:
    """Imports a module without garbage collections: they take a tenth of the time, and find little to free.

    What was imported stays until the process ends. So the objects are exempt from collections: otherwise the first
    collection would check all of them, which takes milliseconds.
    """
    gc.disable()
    try:
        return import_module(module)
    finally:
        gc.freeze()
        gc.enable()


def _without_kafka(name: str) -> str:
    """Returns the name of a command, also if it is given as that of Kafka's script: ``kafka-topics.sh``."""
    short = name.removeprefix("kafka-").removesuffix(".sh").removesuffix(".bat")
    return short if short in COMMANDS else name


def _nearest(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, COMMANDS, n=1)
    return f"; did you mean {near[0]}?" if near else ""
