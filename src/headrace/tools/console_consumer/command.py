"""``headrace console-consumer``: prints the records of topics, one line per record.

Without ``--group`` the command reads the partitions of the topic directly. It creates no group, so it does not wait for
a rebalance, and leaves no group at the broker. Kafka's tool creates a group with a random name. With ``--include`` our
command does so too, because a consumer of a pattern must notice new topics.

``formatters.py`` prints records.
"""

from __future__ import annotations

import asyncio
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Mapping, Sequence
from contextlib import suppress
from random import randrange
from time import monotonic
from typing import TYPE_CHECKING

from headrace.protocol.errors import KafkaError
from headrace.tools.console_consumer.formatters import FORMATTERS, Formatter, formatter_named
from headrace.tools.shared.client_properties import (
    add_client_properties,
    add_named_properties,
    client_config,
    file_properties,
    named_properties,
    run_loop,
)
from headrace.tools.shared.commands import CommandError, Output, UsageError, has_room, int32, new_parser, run

if TYPE_CHECKING:
    from headrace import AsyncConsumer
    from headrace.client.types import ConsumedRecord

_MOST_AT_ONCE = 5_000
_WAIT_MS = 1_000
#: How often the command checks whether the topic has new partitions.
_LOOK_EVERY_S = 5.0

_EXAMPLES = """
headrace console-consumer --topic orders --from-beginning
headrace console-consumer --topic orders --partition 0 --offset 42 --max-messages 1 --property print.key=true
headrace console-consumer --include 'orders.*' --group audit --isolation-level read_committed
headrace console-consumer --topic orders --from-beginning --timeout-ms 2000 --json
headrace console-consumer --topic __consumer_offsets --formatter offsets --from-beginning
"""


def main(arguments: Sequence[str]) -> int:
    return run(parser(), arguments, _work)


def parser() -> ArgumentParser:
    parser = new_parser("console-consumer", "Show the records of topics, one line per record.", _EXAMPLES)
    add = parser.add_argument
    add("--topic", metavar="NAME", help="the topic to read")
    add(
        "--include",
        "--whitelist",
        metavar="REGEX",
        help="read all topics whose whole names match this regular expression",
    )
    add(
        "--from-beginning",
        action="store_true",
        help="start at the first record where the group has no committed offset",
    )
    add("--partition", metavar="N", type=int32, help="read this partition only")
    add("--offset", metavar="OFFSET", type=_offset, help="the offset to start at: a number, earliest or latest")
    add("--group", metavar="ID", help="read as a member of this group, and commit offsets")
    add("--max-messages", metavar="N", type=_limit, help="exit after this many records; -1: never")
    add("--timeout-ms", metavar="MS", type=_limit, help="exit when no record arrived for this time; -1: never")
    add(
        "--isolation-level",
        choices=["read_committed", "read_uncommitted"],
        help="read_committed: show records of transactions only after their commit (default read_uncommitted)",
    )
    add(
        "--formatter",
        metavar="NAME",
        default="default",
        help=f"how to show records: {', '.join(FORMATTERS)}, or the name of Kafka's class",
    )
    add_named_properties(
        parser,
        "formatter",
        ["--formatter-property", "--property"],
        "print.timestamp, print.partition, print.offset, print.epoch, print.headers, print.key, print.value = true or"
        " false; key.separator, line.separator, headers.separator, null.literal, key.deserializer, value.deserializer,"
        " headers.deserializer",
    )
    add("--key-deserializer", metavar="CLASS", help="String, Long, Integer, ... or the name of Kafka's class")
    add("--value-deserializer", metavar="CLASS", help="the same for values")
    add("--skip-message-on-error", action="store_true", help="continue after a record that cannot be formatted")
    add("--enable-systest-events", action="store_true", help="print shutdown_complete at the end")
    add_client_properties(parser, "consumer", "--consumer-property")
    return parser


def _offset(text: str) -> int | str:
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    if text.isdecimal() and has_room(int(text), 64):
        return int(text)
    raise ArgumentTypeError(
        f"The provided offset value '{text}' is incorrect. "
        "Valid values are 'earliest', 'latest', or a non-negative long."
    )


def _limit(text: str) -> int | None:
    if text == "-1":
        return None
    if not text.isdecimal() or int(text) == 0:
        raise ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


def _work(options: Namespace, out: Output) -> None:
    _check(options)
    properties = named_properties(options, "formatter")
    for name in ("key", "value"):
        if (given := getattr(options, f"{name}_deserializer")) is not None:
            properties[f"{name}.deserializer"] = given
    try:
        show = formatter_named("json" if options.json else options.formatter, properties)
    except ValueError as error:
        raise UsageError(str(error)) from None
    shown = _Shown(show, out, skips_errors=options.skip_message_on_error)
    config = _config(options)
    try:
        run_loop(_consume(options, config, shown))
    finally:
        if shown.is_begun:
            sys.stderr.write(f"Processed a total of {shown.count} messages\n")
        if options.enable_systest_events:
            out.say("shutdown_complete")


def _check(options: Namespace) -> None:
    if (options.topic is None) == (options.include is None):
        raise UsageError("Exactly one of the following arguments is required: [topic], [include]")
    if options.partition is not None and options.topic is None:
        raise UsageError("The topic is required when partition is specified.")
    if options.offset is not None and options.partition is None:
        raise UsageError("The partition is required when offset is specified.")
    if options.offset is not None and options.from_beginning:
        raise UsageError("Options from-beginning and offset cannot be specified together.")


def _config(options: Namespace) -> dict[str, object]:
    from headrace.client.config import ConsumerConfig

    in_file, properties = file_properties(options), dict(options.properties)
    options.group = _group(options, in_file, properties)
    reset = (in_file | properties).get("auto.offset.reset")
    if options.from_beginning and reset not in (None, "earliest"):
        raise UsageError(f"--from-beginning and auto.offset.reset={reset} contradict each other")
    fixed: dict[str, object] = {
        "isolation.level": options.isolation_level,
        "auto.offset.reset": "earliest" if options.from_beginning else None,
        "group.id": options.group,
    }
    if options.group is None:
        fixed["enable.auto.commit"] = False
        if options.include is not None:
            fixed["group.id"] = f"console-consumer-{randrange(100_000)}"
    return client_config(options, ConsumerConfig, {"client.id": "console-consumer"}, fixed, in_file)


def _group(options: Namespace, in_file: Mapping[str, str], properties: Mapping[str, str]) -> str | None:
    """The group that the options and the properties name; all of them must name the same group."""
    places = (options.group, properties.get("group.id"), in_file.get("group.id"))
    groups = list(dict.fromkeys(group for group in places if group is not None))
    if len(groups) > 1:
        names = ", ".join(f"'{group}'" for group in groups)
        raise UsageError(f"The group ids provided in different places do not match. Detected group ids: {names}")
    if groups and options.partition is not None:
        raise UsageError("Options group and partition cannot be specified together.")
    return groups[0] if groups else None


class _Shown:
    """Prints records, and counts them."""

    def __init__(self, show: Formatter, out: Output, *, skips_errors: bool) -> None:
        self.count = 0
        #: A broker was found.
        self.is_begun = False
        self._show = show
        self._out = out
        self._skips_errors = skips_errors

    def add(self, records: list[ConsumedRecord]) -> None:
        lines: list[bytes] = []
        try:
            for record in records:
                try:
                    lines.append(self._show(record))
                except (ValueError, KafkaError) as error:
                    self._failed(record, error)
                self.count += 1
        finally:
            sys.stdout.buffer.write(b"".join(lines))
            sys.stdout.buffer.flush()

    def _failed(self, record: ConsumedRecord, error: Exception) -> None:
        where = f"{record.topic}-{record.partition} at offset {record.offset}"
        if not self._skips_errors:
            raise CommandError(f"Error processing message, terminating consumer process: {where}: {error}")
        self._out.complain(f"Error processing message, skipping this message: {where}: {error}")


async def _consume(options: Namespace, config: dict[str, object], shown: _Shown) -> None:
    from headrace import AsyncConsumer
    from headrace.client.errors import HeadraceError

    async with AsyncConsumer(config=config) as consumer:
        await _begin(options, consumer)
        shown.is_begun = True
        last, looked = monotonic(), monotonic()
        while options.max_messages is None or shown.count < options.max_messages:
            wait_ms: float = _WAIT_MS
            if options.timeout_ms is not None:
                wait_ms = min(wait_ms, options.timeout_ms - (monotonic() - last) * 1000)
                if wait_ms <= 0:
                    return
            most = _MOST_AT_ONCE
            if options.max_messages is not None:
                most = min(most, options.max_messages - shown.count)
            records = await consumer.poll(wait_ms, most)
            if records:
                shown.add(records)
                last = monotonic()
                await asyncio.sleep(0)  # So that Ctrl-C works even if there is always a record to read.
            if options.group is None and options.topic and monotonic() - looked > _LOOK_EVERY_S:
                looked = monotonic()
                with suppress(
                    HeadraceError
                ):  # No broker answers now. The command continues when a broker answers again.
                    await _add_partitions(options, consumer)


async def _begin(options: Namespace, consumer: AsyncConsumer) -> None:
    from headrace import TopicPartition

    if options.include is not None:
        try:
            consumer.subscribe(pattern=options.include)
        except ValueError as error:
            raise UsageError(str(error)) from None
    elif options.group is not None:
        consumer.subscribe([options.topic])
    else:
        there = await consumer.partitions_for(options.topic)
        wanted = [one.partition for one in there]
        if options.partition is not None:
            if options.partition not in wanted:
                raise CommandError(f"{options.topic} has no partition {options.partition}; it has {len(wanted)}")
            wanted = [options.partition]
        partitions = [TopicPartition(options.topic, index) for index in wanted]
        consumer.assign(partitions)
        if isinstance(options.offset, int):
            consumer.seek(partitions[0], options.offset)
        elif options.offset == "earliest":
            consumer.seek_to_beginning()
        elif options.offset == "latest":
            consumer.seek_to_end()


async def _add_partitions(options: Namespace, consumer: AsyncConsumer) -> None:
    """Reads new partitions of the topic from their start."""
    from headrace import TopicPartition

    if options.partition is not None:
        return
    known = consumer.assignment()
    there = {TopicPartition(options.topic, one.partition) for one in await consumer.partitions_for(options.topic)}
    if more := there - known:
        consumer.assign(known | more)
        consumer.seek_to_beginning(*more)
