"""``headrace mirror-maker``: copies topics of one cluster to another and keeps them up to date.

The options are here, and what is shown; the work is in ``client/mirror/``, and what it guarantees in docs/mirroring.md.
Flags of Kafka's own tool of that name (``--consumer.config``, ``--whitelist``, ...) are taken as they are.

With ``--json`` each thing that happens is a line: ``mirroring`` a topic, ``note``, ``failed`` (it tries again),
``groups`` and at last ``ended``.
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
"""
#: Names of classes in Java's properties, that mean nothing here; bytes are copied as they are.
_CLASSES = ("key.deserializer", "value.deserializer", "key.serializer", "value.serializer", "partitioner.class")
_CONSUMER = {
    "isolation.level": "read_committed",
    "auto.offset.reset": "none",
    "allow.auto.create.topics": "false",
    "enable.auto.commit": "false",
}
#: Unless the files have others. What is not delivered for long may be so since the topic was deleted: then the next
#: session makes it again, and nobody else would. A transaction does not last much longer anyway.
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
    add = parser.add_argument
    add("--source", metavar="HOST:PORT,...", help="brokers of the cluster to copy from")
    add("--target", metavar="HOST:PORT,...", help="brokers of the cluster to copy to")
    add("--consumer.config", dest="consumer_config", metavar="FILE", type=Path, help="properties for the source")
    add("--producer.config", dest="producer_config", metavar="FILE", type=Path, help="properties for the target")
    add("--include", "--whitelist", metavar="REGEX", help="topics whose whole names match; a comma is an or")
    add("--exclude", metavar="REGEX", help="but not these")
    add("--topic-prefix", metavar="TEXT", default="", help="what names at the target begin with")
    add(
        "--rename", metavar="OLD=NEW", type=name_and_value, action="append", default=[],
        help="mirror a topic under another name; may be given several times",
    )  # fmt: skip
    add(
        "--name", metavar="NAME", type=_name,
        help="which mirror this is: it goes on where the one of that name ended (default mirror, or the group.id of "
        "--consumer.config)",
    )  # fmt: skip
    add("--once", action="store_true", help="end when it has caught up with where the source ends now")
    add(
        "--start", choices=["earliest", "latest"], default="earliest",
        help="where to begin with what was never mirrored (default %(default)s)",
    )  # fmt: skip
    add(
        "--delivery", choices=["exactly-once", "at-least-once"], default="exactly-once",
        help="by transactions at the target or without (default %(default)s)",
    )  # fmt: skip
    add(
        "--sync-group-offsets", metavar="REGEX",
        help="translate what these groups have committed, for those not in use at the target",
    )  # fmt: skip
    for flag, default_ms, help_text in (
        ("--sync.group.offsets.interval.ms", 10_000, "how often that is done"),
        ("--refresh.topics.interval.ms", 60_000, "how often it looks for new topics and partitions"),
        ("--offset.commit.interval.ms", 1_000, "how long a transaction takes in records, at most"),
    ):
        add(flag, dest=flag[2:].replace(".", "_"), metavar="MS", type=int, default=default_ms,
            help=f"{help_text} (default %(default)s)")  # fmt: skip
    add(
        "--abort.on.send.failure", dest="abort_on_send_failure", choices=["true", "false"], default="true",
        help="end when the target refuses records; false tries again (default %(default)s)",
    )  # fmt: skip
    add("--num.streams", dest="num_streams", metavar="N", type=int, help="taken, without effect")
    add(
        "--timeout", metavar="MS", type=int, default=DEFAULT_TIMEOUT_MS,
        help="give up after so long if a cluster does not answer at the start (default %(default)s)",
    )  # fmt: skip
    return parser


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,200}", text):
        raise ArgumentTypeError(f"{text!r}: letters, digits, dots, dashes and underscores")
    return text


def _work(options: Namespace, out: Output) -> int:
    mirror_options = _mirror_options(options)
    try:
        from headrace.client.mirror.mirror import Mirror
    except ImportError as error:
        raise CommandError(str(error)) from None
    if not options.json:
        out.note(f"mirroring from {options.source} to {options.target}; Ctrl-C ends it")
    began = monotonic()
    with progress("mirrored", None, unit="offsets") as move_to:
        mirror = Mirror(mirror_options, _shown(out, move_to))
        run_loop(_run(mirror, options.timeout))
    _show_end(mirror, out, monotonic() - began)
    return DONE if mirror.has_caught_up or not options.once else INTERRUPTED


async def _run(mirror: Mirror, patience_ms: int) -> None:
    """A first signal ends it after the round it is in; a second, or that round taking too long, ends it at once.

    The round does not count then, and is the first one of the next run.
    """
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(mirror.run(stopping))

    def stop() -> None:
        if stopping.is_set() or not mirror.is_mirroring:
            task.cancel()  # nothing is open, or there is no more patience
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

    source, target = _properties(options.consumer_config), _properties(options.producer_config)
    options.source = options.source or source.get("bootstrap.servers")
    options.target = options.target or target.get("bootstrap.servers")
    if not options.source or not options.target:
        raise UsageError("both --source and --target are needed, or files that have bootstrap.servers")
    if options.include is None and not options.rename:
        raise UsageError("which topics? Give --include, or --rename")
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
    found = {} if path is None else read_properties(path)
    return {name: value for name, value in found.items() if name not in _CLASSES and name != "transactional.id"}


def _config(
    options: Namespace, kind: type[ClientConfig], servers: str, more: Mapping[str, object]
) -> dict[str, object]:
    side = Namespace(bootstrap_server=servers, timeout=options.timeout)
    return client_options(side, kind, kind.of_shared(more))


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
        sys.stderr.write(f"{text}\n")  # whatever that is now: a progress bar takes lines above itself


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
