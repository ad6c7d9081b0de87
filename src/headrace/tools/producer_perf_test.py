"""``headrace producer-perf-test``: measures how fast records are produced, in the words of Kafka's tool.

The command encodes whole batches, as large as ``batch.size`` allows, and puts them into the producer's queues. The
producer does the rest: partition, sequence, compression, checksum, sending and retries. The latency of a batch is the
time from its creation to the broker's answer, with the time in the queue, and counts for all records of the batch.

With ``--throughput`` the command sends the due records every few milliseconds, in one batch if they are several.
"""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import monotonic, time
from typing import TYPE_CHECKING
from uuid import uuid4

from headrace.client.encoded_batch import EncodedBatch
from headrace.tools.perf.options import metrics_lines, not_negative, positive, say_above_bar
from headrace.tools.perf.payloads import BatchMaker, PayloadBatch, Source, file_source, monotonic_source, random_source
from headrace.tools.perf.stats import Latencies, ProducerReport
from headrace.tools.shared.client_properties import add_client_properties, client_config, file_properties, run_loop
from headrace.tools.shared.commands import CommandError, Output, UsageError, new_parser, progress, run

if TYPE_CHECKING:
    from headrace import AsyncProducer
    from headrace.client.producer.batch import ProducerBatch

_CLIENT_ID = "perf-producer-client"
_TICK_S = 0.005
_QUIT_MS = 1_000
_TRANSACTION_MS = 3000

_EXAMPLES = """
headrace producer-perf-test --topic orders --num-records 1000000 --record-size 100 --throughput -1
headrace producer-perf-test --topic orders --num-records 6000 --record-size 10 --throughput 100 --producer-props acks=1
headrace producer-perf-test --topic orders --num-records 1000000 --payload-file lines.txt --throughput -1 --json
headrace producer-perf-test --topic orders --num-records 1000000 --record-size 100 --transaction-duration-ms 500
"""


def main(arguments: Sequence[str]) -> int:
    return run(parser(), arguments, _work)


def parser() -> ArgumentParser:
    parser = new_parser(
        "producer-perf-test",
        "Measure how fast records are produced. The command encodes whole batches, and an ordinary producer sends"
        "\nthem, idempotent and with acks=all by default. Latency is the time from the creation of a batch to the"
        "\nbroker's answer, with the time in the producer's queue. It counts for each record of the batch.",
        _EXAMPLES,
    )
    add = parser.add_argument
    add("--topic", metavar="NAME", required=True, help="the topic to send to")
    add("--num-records", metavar="N", type=positive, required=True, help="how many records to send")
    payload = parser.add_mutually_exclusive_group(required=True)
    payload.add_argument("--record-size", metavar="BYTES", type=not_negative, help="random letters of this size")
    payload.add_argument("--payload-file", metavar="FILE", type=Path, help="records drawn from the lines of a file")
    payload.add_argument("--payload-monotonic", action="store_true", help="the numbers 0, 1, 2, ...")
    add(
        "--payload-delimiter",
        metavar="TEXT",
        type=_delimiter,
        default=b"\n",
        help="the text between two payloads in the file (default: a new line)",
    )
    add(
        "--throughput",
        metavar="N",
        type=float,
        default=-1,
        help="send about this many records per second; -1: as fast as possible",
    )
    add_client_properties(parser, "producer", "--producer-props", many=True)
    add("--print-metrics", action="store_true", help="print metrics at the end")
    add("--transactional-id", metavar="ID", help="send in transactions under this id")
    add(
        "--transaction-duration-ms",
        metavar="MS",
        type=positive,
        help=f"commit after this time (default with an id: {_TRANSACTION_MS})",
    )
    add(
        "--warmup-records",
        metavar="N",
        type=not_negative,
        default=0,
        help="print also the results without the first N records",
    )
    add("--reporting-interval", metavar="MS", type=positive, default=5000, help="default %(default)s")
    return parser


def _delimiter(text: str) -> bytes:
    r"""An argparse type: text in which \n, \t and the like stand for control characters."""
    try:
        # Characters outside Latin-1 become escapes first, because unicode_escape reads all other bytes as Latin-1.
        return text.encode("latin-1", "backslashreplace").decode("unicode_escape").encode()
    except UnicodeError:
        raise ArgumentTypeError(f"{text!r} has a backslash without a character after it") from None


def _work(options: Namespace, out: Output) -> int | None:
    if options.warmup_records >= options.num_records:
        raise UsageError("The value for --warmup-records must be strictly fewer than the number of records in the test")
    if options.throughput == 0:
        raise UsageError("--throughput 0 would never end; -1 means no limit")
    config = _config(options)
    source = _source(options)
    test = _Test(options, config, source, out)
    try:
        with progress("sent", options.num_records, unit="records") as moved_to:
            run_loop(test.run(moved_to))
    finally:  # Also after Ctrl-C: for the records that were sent until then.
        test.report()
    if test.failed_count:
        raise CommandError(f"{test.failed_count} records were not delivered: {test.first_error}")
    return None


def _config(options: Namespace) -> dict[str, object]:
    from headrace.client.config import ProducerConfig

    in_file = file_properties(options)
    given = in_file | dict(options.properties)
    transactional_id = options.transactional_id or given.get("transactional.id")
    if transactional_id is None and options.transaction_duration_ms is not None:
        transactional_id = f"performance-producer-{uuid4()}"
    defaults: dict[str, object] = {"client.id": _CLIENT_ID}
    config = client_config(options, ProducerConfig, defaults, {"transactional.id": transactional_id}, in_file)
    if config.get("transactional.id") is not None and options.transaction_duration_ms is None:
        options.transaction_duration_ms = _TRANSACTION_MS
    return config


def _source(options: Namespace) -> Source:
    if options.payload_monotonic:
        return monotonic_source()
    if options.payload_file is None:
        return random_source(options.record_size)
    try:
        content = options.payload_file.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {options.payload_file}: {error.strerror}") from None
    delimiter = options.payload_delimiter
    payloads = [payload for payload in content.split(delimiter) if payload] if delimiter else [content]
    if not payloads:
        raise UsageError(f"File does not exist or empty file provided: {options.payload_file}")
    return file_source(payloads)


class _Test:
    def __init__(self, options: Namespace, config: dict[str, object], source: Source, out: Output) -> None:
        from headrace.client.config import ProducerConfig

        self._options = options
        self._config = config
        self._out = out
        loaded = ProducerConfig.load(config)
        self._maker = BatchMaker(source, min(loaded.batch_size, loaded.max_request_size))
        self._total, self._steady, self._window = Latencies(), Latencies(), Latencies()
        self._made_count = 0
        self._steady_since: float | None = None
        self._is_steady_told = False
        self._transaction_began = 0.0
        self._ended: float | None = None
        self.failed_count = 0
        self.first_error: Exception | None = None

    async def run(self, moved_to: Callable[[float], None]) -> None:
        from headrace import AsyncProducer

        options = self._options
        async with AsyncProducer(self._config) as producer:
            await producer.partitions_of(options.topic)
            if options.transaction_duration_ms is not None:
                await producer.init_transactions()
            if options.warmup_records:
                say_above_bar(
                    self._out,
                    f"Warmup first {options.warmup_records} records. "
                    "Steady state results will print after the complete test summary.",
                )
            self._began = self._reported = monotonic()
            reporting = asyncio.create_task(self._report_windows(moved_to))
            try:
                await self._send_all(producer)
                await producer.flush()
            except asyncio.CancelledError:
                await producer.close(_QUIT_MS)  # After Ctrl-C do not wait for all buffered records.
                raise
            finally:
                reporting.cancel()
                self._ended = monotonic()
            moved_to(self._total.record_count)

    async def _send_all(self, producer: AsyncProducer) -> None:
        options = self._options
        in_transaction = False
        while self._made_count < options.num_records and self.failed_count == 0:
            most = options.num_records - self._made_count
            if options.throughput > 0:
                most = min(most, await self._due())
            if self._made_count < options.warmup_records:
                most = min(most, options.warmup_records - self._made_count)
            elif self._steady_since is None:
                self._steady_since = monotonic()
            if options.transaction_duration_ms is not None:
                if in_transaction and (monotonic() - self._transaction_began) * 1000 >= options.transaction_duration_ms:
                    await producer.commit_transaction()
                    in_transaction = False
                if not in_transaction:
                    await producer.begin_transaction()
                    in_transaction, self._transaction_began = True, monotonic()
            await self._send(producer, most)
        if in_transaction:
            await producer.commit_transaction()

    async def _due(self) -> int:
        """How many records may be sent now; waits until there is at least one."""
        while True:
            due = int((monotonic() - self._began) * self._options.throughput) + 1 - self._made_count
            if due > 0:
                return due
            await asyncio.sleep(max(_TICK_S, -due / self._options.throughput))

    async def _send(self, producer: AsyncProducer, most: int) -> None:
        timestamp_ms = int(time() * 1000)
        made = self._maker.make(most, timestamp_ms)
        began, is_warmup = monotonic(), self._made_count < self._options.warmup_records
        self._made_count += made.record_count
        partition = _partition(producer, self._options.topic, len(made.body))
        encoded = EncodedBatch(partition, made.body, made.record_count, timestamp_ms, timestamp_ms)
        batch = await producer.send_encoded(self._options.topic, encoded)
        answered = partial(self._answered, batch, made, began, is_warmup)
        if batch.is_settled:
            answered()
        else:
            batch.listeners.append(answered)

    def _answered(self, batch: ProducerBatch, made: PayloadBatch, began: float, is_warmup: bool) -> None:
        if batch.parts:  # The broker rejected the batch as too large, so its halves are sent separately.
            for _, part in batch.parts:
                share = made._replace(
                    record_count=part.record_count,
                    payload_bytes=made.payload_bytes * part.record_count // made.record_count,
                )
                part.listeners.append(partial(self._answered, part, share, began, is_warmup))
            return
        if batch.error is not None:
            self.failed_count += batch.record_count
            self.first_error = self.first_error or batch.error
            return
        latency_ms = (monotonic() - began) * 1000
        for latencies in (self._total, self._window) if is_warmup else (self._total, self._window, self._steady):
            latencies.add(latency_ms, made.record_count, made.payload_bytes)

    # -- output

    async def _report_windows(self, moved_to: Callable[[float], None]) -> None:
        while True:
            await asyncio.sleep(min(0.2, self._options.reporting_interval / 1000))
            moved_to(self._total.record_count)
            elapsed_s = monotonic() - self._reported
            if elapsed_s * 1000 >= self._options.reporting_interval and self._window.record_count:
                if self._options.warmup_records and self._steady_since is not None and not self._is_steady_told:
                    self._is_steady_told = True
                    say_above_bar(self._out, "In steady state.")
                say_above_bar(self._out, ProducerReport.window(self._window, elapsed_s))
                self._window, self._reported = Latencies(), monotonic()

    def report(self) -> None:
        if self._ended is None:  # The test did not begin.
            return
        elapsed_s = self._ended - self._began
        shown = ProducerReport.as_json(self._total, elapsed_s)
        lines = [ProducerReport.total(self._total, elapsed_s)]
        if self._options.warmup_records and self._steady_since is not None:
            steady_s = self._ended - self._steady_since
            shown["steady.state"] = ProducerReport.as_json(self._steady, steady_s)
            lines.append(ProducerReport.total(self._steady, steady_s, "steady state records"))
        if self._options.print_metrics:
            metrics = {
                "record-send-total": float(self._total.record_count),
                "record-error-total": float(self.failed_count),
                "record-send-rate": self._total.record_count / elapsed_s,
                "request-latency-avg": self._total.average_ms,
                "request-latency-max": self._total.max_ms,
            }
            shown["metrics"] = metrics
            lines += metrics_lines("producer-metrics", str(self._config["client.id"]), metrics)
        self._out.show(shown, lines)


def _partition(producer: AsyncProducer, topic: str, size_bytes: int) -> int:
    """The partition that the producer would choose for a record without a key."""
    partitions = producer.record_buffer.metadata.topics[topic].partitions
    available = [one.partition for one in partitions if one.leader_id >= 0]
    partitioner = producer.record_buffer.partitioner
    partition = partitioner.partition(topic, len(partitions), available)
    partitioner.on_appended(topic, size_bytes, is_batch_done=True)
    return partition
