"""``headrace console-producer``: sends the lines of standard input as records.

The command looks for the broker and the topic before it reads the first line, so that the user sees a mistake at once.
``line_reader.py`` makes a record of a line. If a record is not delivered, the command prints one line and sends the
next records, as Kafka's tool does, but its exit code is then 1. A line that lacks a part ends the command; the records
before it are sent.

``--timeout`` has Kafka's meaning: how long a record may wait for its batch to fill (``linger.ms``). At the end of the
input no record waits. If ``--timeout`` is given, it is also the time to look for a broker, as in the other commands.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headrace.tools.console_producer.line_reader import BadLine, LineReader, without_end
from headrace.tools.perf.options import not_negative, positive
from headrace.tools.shared.client_properties import (
    add_client_properties,
    add_named_properties,
    client_config,
    named_properties,
)
from headrace.tools.shared.commands import CommandError, Output, UsageError, new_parser, run

if TYPE_CHECKING:
    from headrace import Producer
    from headrace.client.producer.delivery import Delivery

_CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
_READERS = ("LineMessageReader", "org.apache.kafka.tools.LineMessageReader", "line")
_LINGER_MS = 1_000
_FIND_BROKER_MS = 10_000
#: How many failed records are reported one by one.
_MOST_COMPLAINTS = 10
_LOOK_EVERY = 2_000

_EXAMPLES = """
echo hello | headrace console-producer --topic orders
headrace console-producer --topic orders --reader-property parse.key=true --reader-property key.separator=:
headrace console-producer --topic orders --compression-codec zstd --request-required-acks 1 < lines.txt
headrace console-producer --topic orders --sync --command-property client.id=me
"""


def main(arguments: Sequence[str]) -> int:
    return run(parser(), arguments, _work)


def parser() -> ArgumentParser:
    parser = new_parser(
        "console-producer",
        "Send the lines of standard input as records.",
        _EXAMPLES,
        prints_json=False,
        has_timeout=False,
        has_broker_list=True,
    )
    add = parser.add_argument
    add("--topic", metavar="NAME", required=True, help="the topic to send to")
    add_named_properties(
        parser,
        "reader",
        ["--reader-property", "--property"],
        "parse.key, parse.headers, ignore.error = true or false; key.separator (a tab), headers.delimiter (a tab),"
        " headers.separator (,), headers.key.separator (:), null.marker (none)",
    )
    add(
        "--line-reader",
        metavar="CLASS",
        choices=_READERS,
        default="line",
        help="the name of the reader; line is the only one",
    )
    add("--sync", action="store_true", help="wait until each record is delivered before reading the next")
    add(
        "--timeout",
        metavar="MS",
        type=not_negative,
        help=f"how long a record may wait for its batch to fill (default {_LINGER_MS}), and how long to look for a "
        f"broker (default {_FIND_BROKER_MS})",
    )
    _add_producer_options(parser)
    add_client_properties(parser, "producer", "--producer-property")
    return parser


def _add_producer_options(parser: ArgumentParser) -> None:
    """Adds the flags of Kafka's tool that set one option of the producer each."""
    add = parser.add_argument
    add(
        "--compression-codec",
        nargs="?",
        const="gzip",
        choices=_CODECS,
        help="compress batches (default codec: gzip)",
    )
    add(
        "--request-required-acks",
        metavar="ACKS",
        help="how many replicas must have a record: all, -1, 1, 0 (default -1)",
    )
    add(
        "--max-block-ms", metavar="MS", type=positive, help="how long to wait for a broker, for the topic or for memory"
    )
    add("--batch-size", "--max-partition-memory-bytes", metavar="BYTES", type=not_negative, help="batch.size")
    add("--max-memory-bytes", metavar="BYTES", type=positive, help="buffer.memory")
    add("--message-send-max-retries", metavar="N", type=not_negative, help="retries")
    add("--request-timeout-ms", metavar="MS", type=positive, help="request.timeout.ms")
    add("--retry-backoff-ms", metavar="MS", type=not_negative, help="retry.backoff.ms")
    add("--metadata-expiry-ms", metavar="MS", type=not_negative, help="metadata.max.age.ms")
    add(
        "--socket-buffer-size",
        metavar="BYTES",
        type=positive,
        help="accepted and ignored: the operating system sizes the buffers",
    )


def _work(options: Namespace, out: Output) -> int:
    from headrace import Producer

    try:
        reader = LineReader(named_properties(options, "reader"))
    except ValueError as error:
        raise UsageError(str(error)) from None
    config = _config(options)
    failures = _Failures(out)
    try:
        with Producer(config) as producer:
            producer.partitions_of(options.topic)
            _send_all(producer, options, reader, failures)
    except BadLine as error:
        raise CommandError(str(error)) from None
    finally:  # Also after Ctrl-C: close() has sent the buffered records, as far as possible.
        code = failures.report()
    return code


def _config(options: Namespace) -> dict[str, object]:
    from headrace.client.config import ProducerConfig

    fixed = {
        "acks": options.request_required_acks,
        "batch.size": options.batch_size,
        "buffer.memory": options.max_memory_bytes,
        "compression.type": options.compression_codec,
        "linger.ms": options.timeout,
        "max.block.ms": options.max_block_ms,
        "metadata.max.age.ms": options.metadata_expiry_ms,
        "request.timeout.ms": options.request_timeout_ms,
        "retries": options.message_send_max_retries,
        "retry.backoff.ms": options.retry_backoff_ms,
    }
    if options.request_required_acks in ("0", "1"):  # The user has not asked for an idempotent producer.
        fixed["enable.idempotence"] = False
    # With --sync no second record can join the batch, so lingering would only delay the first.
    defaults = {"client.id": "console-producer", "linger.ms": 0 if options.sync else _LINGER_MS}
    # The shared options mean by --timeout the time to look for a broker. A value below a second is meant as linger.ms
    # only.
    options.timeout = options.max_block_ms or max(options.timeout or _FIND_BROKER_MS, 1_000)
    return client_config(options, ProducerConfig, defaults, fixed)


def _send_all(producer: Producer, options: Namespace, reader: LineReader, failures: _Failures) -> None:
    topic, send = options.topic, producer.send
    for raw in _lines():
        if reader.is_plain:
            delivery = send(topic, without_end(raw))
        else:
            line = reader.parse(without_end(raw))
            delivery = send(topic, line.value, key=line.key, headers=line.headers)
        if options.sync:
            delivery.exception()
        failures.watch(delivery)


def _lines() -> Iterator[bytes]:
    """Yields the lines of standard input as they arrive; on a terminal with Kafka's prompt."""
    source = sys.stdin.buffer
    if not sys.stdin.isatty():
        yield from source
        return
    while True:
        sys.stdout.write(">")
        sys.stdout.flush()
        line = source.readline()
        if not line:
            return
        yield line


class _Failures:
    """Reports records that were not delivered.

    It looks at deliveries, because a callback per record costs more than sending.
    """

    def __init__(self, out: Output) -> None:
        self._out = out
        self._waiting: deque[Delivery] = deque()
        self._next_look = _LOOK_EVERY
        self._count = 0

    def watch(self, delivery: Delivery) -> None:
        self._waiting.append(delivery)
        if len(self._waiting) >= self._next_look:
            self._look()
            self._next_look = len(self._waiting) + _LOOK_EVERY

    def _look(self) -> None:
        """Each partition answers in order, so the oldest deliveries are usually done first."""
        waiting = self._waiting
        while waiting and waiting[0].done():
            error = waiting.popleft().exception_now()
            if error is not None:
                self._count += 1
                if self._count <= _MOST_COMPLAINTS:
                    self._out.complain(f"a record was not delivered: {error}")

    def report(self) -> int:
        """Returns the exit code, after everything is flushed."""
        self._look()
        if self._count > _MOST_COMPLAINTS:
            self._out.complain(f"{self._count} records were not delivered")
        return 1 if self._count else 0
