"""``headrace start``: runs one broker, or several (``local_cluster.py``), in the foreground, until a signal stops it.

The command prints one line, ``ready HOST:PORT``, on standard output when the broker serves. Everything else goes to
standard error. SIGTERM and Ctrl-C start a controlled shutdown, with exit code 0; a second signal ends the process at
once.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path

from headrace.broker.broker import Broker, StartError
from headrace.broker.configs.broker_config import BrokerConfig
from headrace.broker.configs.without_effect import without_effect
from headrace.event_loop import new_event_loop
from headrace.properties import ConfigError, parse_overrides, read_properties_file
from headrace.runtime.memory import collect_rarely, pause_collections
from headrace.tools.shared.commands import add_overrides, add_version
from headrace.tools.shared.stderr_log import log_to_stderr

logger = logging.getLogger("headrace")

#: Without a file: new groups do not wait for more members, as in the server.properties that Kafka has shipped.
_FIRST_START = {"group.initial.rebalance.delay.ms": "0"}

_EPILOG = """examples:
  headrace start
  headrace start --data /var/lib/headrace --listen 0.0.0.0:9092
  headrace start --config server.properties -o num.partitions=3 -o log.retention.hours=24
  headrace start --listen 127.0.0.1:0 --metrics 127.0.0.1:9404
  headrace start --brokers 3
  headrace start --console 127.0.0.1:8080
  headrace start --zookeeper zk1:2181,zk2:2181,zk3:2181/headrace --listen 10.0.0.1:9092
"""


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    log_to_stderr(options.log_level.upper(), prefix=_who(options), suffix=" (%(name)s)")
    try:
        config = BrokerConfig.load(_properties(options))
        listener = _listener_of_console(config, options)
    except ConfigError as error:
        return _cannot_start("\n".join(error.problems))
    if options.brokers is not None:
        from headrace.tools.start.local_cluster import run

        return run(options)
    if (Path(config.log_dirs[0]) / "broker-1" / "meta.properties").exists():
        return _cannot_start(f"{config.log_dirs[0]} is the folder of a cluster; start it with --brokers")
    for name in config.unknown:
        logger.warning("%s is not a setting of Kafka or Headrace; it is ignored", name)
    for name, reason in config.ignored.items():
        logger.info("%s is ignored: %s", name, reason)
    for line in without_effect(config):
        logger.warning("%s", line)
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(_serve(config, options, listener))
    except StartError as error:
        return _cannot_start(str(error))
    return 0


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="headrace start",
        description="Start a broker, or several brokers. The command prints 'ready HOST:PORT' when the broker serves, "
        "or all addresses with commas between them. Without --config, group.initial.rebalance.delay.ms is 0 instead of "
        "3000, so that the first member of a consumer group gets its partitions at once.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", metavar="DIR", help="the data folder (default ./headrace-data)")
    parser.add_argument(
        "--listen",
        metavar="[NAME://]HOST:PORT",
        help="the address to listen on (default 127.0.0.1:9092); port 0 picks a free port; NAME is that of "
        "the listener, such as SASL_SSL (default PLAINTEXT)",
    )
    parser.add_argument(
        "--brokers",
        metavar="N",
        type=_positive,
        help="start a cluster of N brokers on this host, on consecutive ports, with their data in DIR/broker-1 "
        "and so on",
    )
    parser.add_argument(
        "--zookeeper",
        metavar="CONNECT",
        help="join the cluster of a ZooKeeper, HOST:PORT,HOST:PORT/CHROOT (default: embedded coordination)",
    )
    parser.add_argument(
        "--broker-id",
        metavar="ID",
        type=_natural,
        help="the id of the broker; with --brokers of the first one (default: the id in the data folder, or a new id)",
    )
    parser.add_argument("--config", metavar="FILE", type=Path, help="a Kafka server.properties file")
    parser.add_argument(
        "--secrets",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="a file with further settings, which count more than those of --config: passwords, for example. May be "
        "repeated",
    )
    add_overrides(parser)
    parser.add_argument("--metrics", metavar="HOST:PORT", help="serve Prometheus metrics at this address")
    _add_console(parser)
    parser.add_argument(
        "--log-level", choices=["debug", "info", "warning", "error"], default="info", help="default %(default)s"
    )
    add_version(parser)
    return parser


def _add_console(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--console",
        metavar="HOST:PORT",
        help="serve the web console at this address, in a process of its own (pip install 'headrace[console]')",
    )
    parser.add_argument(
        "--console-config",
        metavar="FILE",
        type=Path,
        help="a properties file with the client options of the console (default: it uses a PLAINTEXT listener)",
    )


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value


def _natural(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{value} is less than 0")
    return value


def _who(options: argparse.Namespace) -> str:
    """The prefix that identifies the broker in the common log of a cluster."""
    return "" if options.broker_id is None or options.brokers is not None else f"[{options.broker_id}] "


def _properties(options: argparse.Namespace) -> dict[str, str]:
    """The settings: the defaults of this command, overridden by the files, overridden by the command line."""
    properties = dict(_FIRST_START) if options.config is None else read_properties_file(options.config)
    for file in options.secrets:
        properties.update(read_properties_file(file))
    if options.data is not None or not {"log.dirs", "log.dir"} & properties.keys():
        properties["log.dirs"] = "headrace-data" if options.data is None else options.data
    if options.listen is not None or "listeners" not in properties:
        listen = "127.0.0.1:9092" if options.listen is None else options.listen
        properties["listeners"] = listen if "://" in listen else f"PLAINTEXT://{listen}"
    if options.zookeeper is not None:
        properties["zookeeper.connect"] = options.zookeeper
    if options.broker_id is not None:
        properties["broker.id"] = str(options.broker_id)
    if options.metrics is not None:
        properties["headrace.metrics.listener"] = options.metrics
    properties.update(parse_overrides(options.overrides))
    return properties


def _listener_of_console(config: BrokerConfig, options: argparse.Namespace) -> str:
    """The name of the listener that the console uses; empty without a console."""
    if options.console is None:
        return ""
    from headrace.tools.start.console_beside import listener_of_console  # loads ctypes

    return listener_of_console(config, options.console_config)


async def _serve(config: BrokerConfig, options: argparse.Namespace, console_listener: str) -> None:
    pause_collections()
    broker = Broker(config)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _ask_to_stop, stopping)
    await broker.start()
    collect_rarely()
    try:
        async with _console(broker, options, console_listener):
            for host, port in broker.endpoints.values():
                sys.stdout.write(f"ready {host}:{port}\n")
            sys.stdout.flush()
            await stopping.wait()
            logger.info("stopping")
    except StartError:
        await broker.stop()
        raise
    await broker.stop()


def _console(broker: Broker, options: argparse.Namespace, listener: str) -> AbstractAsyncContextManager[None]:
    if not listener:
        return nullcontext()
    from headrace.tools.start.console_beside import address_text, console_beside

    exporter = broker.metrics_exporter
    # The console does not know the certificate or the secret of an endpoint that others can reach.
    is_plain = exporter is not None and not broker.config.optional_str("headrace.metrics.ssl.certificate.location")
    metrics = [address_text(*exporter.endpoint)] if exporter is not None and is_plain else []
    return console_beside(options, [address_text(*broker.endpoints[listener])], metrics)


def _ask_to_stop(stopping: asyncio.Event) -> None:
    if stopping.is_set():
        raise SystemExit(1)
    stopping.set()


def _cannot_start(reason: str) -> int:
    sys.stderr.write(f"headrace: {reason}\n")
    return 2
