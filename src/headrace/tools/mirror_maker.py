"""``headrace mirror-maker``: copies topics of one cluster to another and keeps them up to date.

This module has the options and the output. ``client/mirror/`` does the work; docs/mirroring.md has its guarantees. The
command accepts the flags of Kafka's tool of that name (``--consumer.config``, ``--whitelist``, ...).

With ``--json`` each event is a line: ``mirroring`` a topic, ``note``, ``failed`` (the mirror tries again), ``groups``,
and ``ended`` at the end.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from headrace.client.errors import HeadraceError
from headrace.client.mirror.topic_names import TopicNames, topic_pattern
from headrace.tools.shared.client_properties import name_and_value, run_loop
from headrace.tools.shared.commands import (
    DEFAULT_TIMEOUT_MS,
    DONE,
    INTERRUPTED,
    CommandError,
    MoveTo,
    Output,
    UsageError,
    client_options,
    new_parser,
    progress,
    read_properties,
    run,
)

if TYPE_CHECKING:
    from headrace.client.config import ClientConfig
    from headrace.client.mirror.mirror import Mirror
    from headrace.client.mirror.options import MirrorEvents, MirrorOptions
    from headrace.client.mirror.topics import MirroredTopic
    from headrace.client.types import TopicPartition

_EXAMPLES = """
headrace mirror-maker --source kafka1:9092 --target 127.0.0.1:9092 --include 'orders|payments'
headrace mirror-maker --source kafka1:9092 --target 127.0.0.1:9092 --include '.*' --exclude 'test-.*' --once
headrace mirror-maker --source kafka1:9092 --target 127.0.0.1:9092 --include '.*' --topic-prefix berlin.
headrace mirror-maker --source kafka1:9092 --target 127.0.0.1:9092 --rename orders=orders-old --sync-group-offsets '.*'
headrace mirror-maker --consumer.config source.properties --producer.config target.properties --whitelist 'orders.*'
headrace mirror-maker --source kafka1:9094 --target 127.0.0.1:9092 --include '.*' --command-config both.properties
"""
#: Names of classes in Java's properties. They are ignored, because the mirror copies bytes unchanged.
_CLASSES = ("key.deserializer", "value.deserializer", "key.serializer", "value.serializer", "partitioner.class")
_SIDES = ("source.", "target.")
_CONSUMER = {
    "isolation.level": "read_committed",
    "auto.offset.reset": "none",
    "allow.auto.create.topics": "false",
    "enable.auto.commit": "false",
}
#: Defaults that the files override. If records are not delivered for this time, the topic may have been deleted. The
#: next session creates the topic again. A transaction does not last much longer anyway.
_CONSUMER_DEFAULTS = {"max.partition.fetch.bytes": 4 << 20}
_PRODUCER_DEFAULTS = {
    "buffer.memory": 64 << 20,
    "max.request.size": 16 << 20,
    "linger.ms": 0,
    "delivery.timeout.ms": 35_000,
}


def main(arguments: Sequence[str]) -> int:
    return run(parser(), arguments, _work)


def parser() -> ArgumentParser:
    parser = new_parser(
        "mirror-maker", "Copy topics to another cluster, and keep the copies up to date.", _EXAMPLES, connects=False
    )
    _add_clusters(parser)
    add = parser.add_argument
    add(
        "--include",
        "--whitelist",
        metavar="REGEX",
        help="regular expression for the whole names of topics; a comma means or",
    )
    add("--exclude", metavar="REGEX", help="but not these")
    add("--topic-prefix", metavar="TEXT", default="", help="prefix of topic names at the target")
    add(
        "--rename", metavar="OLD=NEW", type=name_and_value, action="append", default=[],
        help="mirror a topic under another name; may be repeated",
    )  # fmt: skip
    add(
        "--name", metavar="NAME", type=_name,
        help="the name of the mirror, which continues where the last mirror of that name ended (default mirror, or the "
        "group.id of --consumer.config)",
    )  # fmt: skip
    add("--once", action="store_true", help="exit when everything that the source has now is copied")
    add(
        "--start", choices=["earliest", "latest"], default="earliest",
        help="where to start in partitions that were never mirrored (default %(default)s)",
    )  # fmt: skip
    add(
        "--delivery", choices=["exactly-once", "at-least-once"], default="exactly-once",
        help="exactly-once uses transactions at the target (default %(default)s)",
    )  # fmt: skip
    add(
        "--sync-group-offsets", metavar="REGEX",
        help="translate the committed offsets of these groups, if they have no members at the target",
    )  # fmt: skip
    for flag, default_ms, help_text in (
        ("--sync.group.offsets.interval.ms", 10_000, "how often to translate offsets"),
        ("--refresh.topics.interval.ms", 60_000, "how often to look for new topics and partitions"),
        ("--offset.commit.interval.ms", 1_000, "the longest duration of a transaction"),
    ):
        add(flag, dest=flag[2:].replace(".", "_"), metavar="MS", type=int, default=default_ms,
            help=f"{help_text} (default %(default)s)")  # fmt: skip
    add(
        "--abort.on.send.failure", dest="abort_on_send_failure", choices=["true", "false"], default="true",
        help="exit when the target rejects records; false: try again (default %(default)s)",
    )  # fmt: skip
    add("--num.streams", dest="num_streams", metavar="N", type=int, help="taken, without effect")
    add(
        "--timeout", metavar="MS", type=int, default=DEFAULT_TIMEOUT_MS,
        help="exit if a cluster does not answer within this time at the start (default %(default)s)",
    )  # fmt: skip
    return parser


def _add_clusters(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--source", metavar="HOST:PORT,...", help="brokers of the cluster to copy from")
    add("--target", metavar="HOST:PORT,...", help="brokers of the cluster to copy to")
    add(
        "--command-config",
        metavar="FILE",
        type=Path,
        help="properties for both clusters; a name that begins with source. or target. is for one of them, such as "
        "source.security.protocol",
    )
    add("--consumer.config", dest="consumer_config", metavar="FILE", type=Path, help="properties for the source")
    add("--producer.config", dest="producer_config", metavar="FILE", type=Path, help="properties for the target")


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,200}", text):
        raise ArgumentTypeError(f"{text!r} may have letters, digits, dots, dashes and underscores only")
    return text


def _work(options: Namespace, out: Output) -> int:
    mirror_options = _mirror_options(options)
    try:
        from headrace.client.mirror.mirror import Mirror
    except ImportError as error:
        raise CommandError(str(error)) from None
    if not options.json:
        out.note(f"mirroring from {options.source} to {options.target}; stop with Ctrl-C")
    began = monotonic()
    with progress("mirrored", None, unit="offsets") as move_to:
        mirror = Mirror(mirror_options, _shown(out, move_to))
        run_loop(_run(mirror, options.timeout))
    _show_end(mirror, out, monotonic() - began)
    return DONE if mirror.has_caught_up or not options.once else INTERRUPTED


async def _run(mirror: Mirror, patience_ms: int) -> None:
    """The first signal ends the mirror after its current round.

    A second signal, or a round that takes too long, ends the mirror at once. The unfinished round is then
    aborted, and the next run repeats it.
    """
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(mirror.run(stopping))

    def stop() -> None:
        if stopping.is_set() or not mirror.is_mirroring:
            task.cancel()  # No round is open, or the round took too long.
        stopping.set()
        loop.call_later(patience_ms / 1000, task.cancel)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        await task
    except asyncio.CancelledError:
        if not mirror.state.has_begun:
            raise KeyboardInterrupt from None
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


# ---------------------------------------------------------------------------------------------------------- options


def _mirror_options(options: Namespace) -> MirrorOptions:
    from headrace.client.config import AdminConfig, ConsumerConfig, ProducerConfig
    from headrace.client.mirror.options import MirrorOptions

    shared = _properties(options.command_config)
    source = _of_side(shared, "source.") | _properties(options.consumer_config)
    target = _of_side(shared, "target.") | _properties(options.producer_config)
    options.source = options.source or source.get("bootstrap.servers")
    options.target = options.target or target.get("bootstrap.servers")
    if not options.source or not options.target:
        raise UsageError("give --source and --target, or files with bootstrap.servers")
    if options.include is None and not options.rename:
        raise UsageError("name the topics with --include or --rename")
    name = options.name or source.pop("group.id", None) or "mirror"
    try:
        names = TopicNames(options.include, options.exclude, dict(options.rename), options.topic_prefix)
        groups = None if options.sync_group_offsets is None else topic_pattern(options.sync_group_offsets)
        _name(name)
    except (ValueError, ArgumentTypeError) as error:
        raise UsageError(str(error)) from None
    consumer = _CONSUMER_DEFAULTS | source | _CONSUMER
    producer = _PRODUCER_DEFAULTS | target
    return MirrorOptions(
        names=names,
        source_admin=_config(options, AdminConfig, options.source, source),
        target_admin=_config(options, AdminConfig, options.target, target),
        consumer=_config(options, ConsumerConfig, options.source, consumer),
        producer=_config(options, ProducerConfig, options.target, producer),
        name=name,
        is_once=options.once,
        start=options.start,
        is_exactly_once=options.delivery == "exactly-once",
        groups=groups,
        sync_groups_every_ms=options.sync_group_offsets_interval_ms,
        refresh_topics_every_ms=options.refresh_topics_interval_ms,
        commit_every_ms=options.offset_commit_interval_ms,
        ends_on_failure=options.abort_on_send_failure == "true",
    )


def _properties(path: Path | None) -> dict[str, str]:
    return {} if path is None else _of_clients(read_properties(path))


def _of_clients(found: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in found.items() if name not in _CLASSES and name != "transactional.id"}


def _of_side(shared: Mapping[str, str], prefix: str) -> dict[str, str]:
    """The properties of a side: those without a prefix, overridden by those with its prefix."""
    both = {name: value for name, value in shared.items() if not name.startswith(_SIDES)}
    own = {name.removeprefix(prefix): value for name, value in shared.items() if name.startswith(prefix)}
    return _of_clients(both | own)


def _config(
    options: Namespace, kind: type[ClientConfig], servers: str, more: Mapping[str, object]
) -> dict[str, object]:
    side = Namespace(bootstrap_server=servers, timeout=options.timeout)
    return client_options(side, kind, kind.select(more))


# ----------------------------------------------------------------------------------------------------------- output


def _shown(out: Output, move_to: MoveTo) -> MirrorEvents:
    from headrace.client.mirror.options import MirrorEvents

    class Shown(MirrorEvents):
        def mirroring(self, topic: MirroredTopic) -> None:
            value = {"topic": topic.source, "target": topic.target, "partitions": topic.partition_count}
            plural = "s" if topic.partition_count != 1 else ""
            text = f"{topic.source} -> {topic.target} ({topic.partition_count} partition{plural})"
            _tell(out, "mirroring", value, text)

        def moved(self, done_offsets: int, lag_offsets: int) -> None:
            move_to(done_offsets, done_offsets + lag_offsets)

        def groups_moved(self, offsets: Mapping[str, Mapping[TopicPartition, int]]) -> None:
            for group, its in offsets.items():
                listed = {str(partition): offset for partition, offset in its.items()}
                text = ", ".join(f"{partition} at {offset}" for partition, offset in listed.items())
                _tell(out, "groups", {"group": group, "offsets": listed}, f"group {group}: {text}")

        def note(self, text: str) -> None:
            _tell(out, "note", {"text": text}, text)

        def failed(self, error: HeadraceError) -> None:
            text = " ".join(str(error).split())
            _tell(out, "failed", {"error": text}, f"trying again: {text}")

    return Shown()


def _tell(out: Output, event: str, value: Mapping[str, object], text: str) -> None:
    if out.as_json:
        sys.stdout.write(json.dumps({"event": event, **value}) + "\n")
        sys.stdout.flush()
    else:
        sys.stderr.write(f"{text}\n")  # Looked up now, because a progress bar replaces the stream.


def _show_end(mirror: Mirror, out: Output, seconds: float) -> None:
    state = mirror.state
    rate = state.records / seconds if seconds else 0.0
    value = {
        "event": "ended",
        "records": state.records,
        "seconds": round(seconds, 3),
        "records_per_second": round(rate, 1),
        "exactly_once": state.is_exactly_once,
    }
    out.show(value, f"{state.records} records mirrored in {seconds:.1f} s ({rate:,.0f} records/s)")
