"""``headrace consumer-perf-test``: measures how fast records are consumed, in the columns of Kafka's tool.

The test is a consumer of a group. For each fetched batch it checks the crc, decompresses the batch, and walks the
records to count them and the bytes of their keys and values. With Numba it creates no objects for records; without
Numba it does (``perf/counting.py``). A thread counts while the consumer fetches the next batches.

``rebalance.time.ms`` is the time until partitions were assigned; ``fetch.time.ms`` is the rest. The rates that begin
with ``fetch.`` refer to ``fetch.time.ms``.
"""

from __future__ import annotations

import asyncio
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from random import randrange
from time import monotonic, time
from typing import TYPE_CHECKING

from headrace.tools.perf.options import DATE_FORMAT, date_text, metrics_lines, positive, say_above_bar
from headrace.tools.perf.stats import ConsumerReport, ConsumerTotals
from headrace.tools.shared.client_properties import add_client_properties, client_config, run_loop
from headrace.tools.shared.commands import Output, UsageError, new_parser, progress, run

if TYPE_CHECKING:
    from headrace import AsyncConsumer
    from headrace.client.consumer.fetch_positions import BatchToRead
    from headrace.tools.perf.counting import Counter

_CLIENT_ID = "perf-consumer-client"
_POLL_MS = 100
#: A poll returns at most this much, so that the command can show progress and check the time.
_POLL_BYTES = 32 << 20

_EXAMPLES = """
headrace consumer-perf-test --topic orders --messages 1000000
headrace consumer-perf-test --topic orders --num-records 5000000 --show-detailed-stats --reporting-interval 1000
headrace consumer-perf-test --topic orders --messages 1000000 --fetch-size 4194304 --json
"""


def main(arguments: Sequence[str]) -> int:
    return run(parser(), arguments, _work)


def parser() -> ArgumentParser:
    parser = new_parser(
        "consumer-perf-test",
        "Measure how fast records are consumed. The command checks the crc of each fetched batch, decompresses it and"
        "\nwalks its records: in a kernel if headrace[arrow] is installed, otherwise in Python. It creates no Python"
        "\nobjects for records. MB counts keys and values.",
        _EXAMPLES,
        has_broker_list=True,
    )
    add = parser.add_argument
    add("--topic", metavar="NAME", help="the topic to consume")
    add("--include", metavar="REGEX", help="consume all topics whose whole names match")
    add("--num-records", "--messages", metavar="N", type=positive, required=True, help="how many records to consume")
    add("--group", metavar="ID", help="the group of the consumer (default: a new one)")
    add(
        "--fetch-size",
        metavar="BYTES",
        type=positive,
        default=1 << 20,
        help="bytes per partition in one fetch request (default %(default)s)",
    )
    add(
        "--from-latest",
        action="store_true",
        help="start at the end of partitions where the group has no committed offset",
    )
    add("--show-detailed-stats", action="store_true", help="print a line per reporting interval")
    add("--reporting-interval", metavar="MS", type=positive, default=5000, help="default %(default)s")
    add("--hide-header", action="store_true", help="do not print the names of the columns")
    add("--print-metrics", action="store_true", help="print metrics at the end")
    add(
        "--date-format",
        metavar="FORMAT",
        default=DATE_FORMAT,
        help="the format of times, in Java's letters (default %(default)s)",
    )
    add(
        "--socket-buffer-size",
        metavar="BYTES",
        type=positive,
        help="accepted and ignored: the operating system sizes the buffers",
    )
    add("--threads", metavar="N", type=positive, help="accepted and ignored, as in Kafka's tool")
    add("--num-fetch-threads", metavar="N", type=positive, help="accepted and ignored, as in Kafka's tool")
    add_client_properties(parser, "consumer", "--consumer-property")
    return parser


def _work(options: Namespace, out: Output) -> None:
    if (options.topic is None) == (options.include is None):
        raise UsageError("Exactly one of the following arguments is required: [topic], [include]")
    from headrace.client.config import ConsumerConfig
    from headrace.tools.perf.counting import counter

    fixed: dict[str, object] = {
        "group.id": options.group,
        "max.partition.fetch.bytes": options.fetch_size,
        "auto.offset.reset": "latest" if options.from_latest else "earliest",
    }
    defaults = {"client.id": _CLIENT_ID, "group.id": f"perf-consumer-{randrange(100_000)}"}
    config = client_config(options, ConsumerConfig, defaults, fixed)
    test = _Test(options, config, counter(), out)
    try:
        with progress("consumed", options.num_records, unit="records") as moved_to:
            run_loop(test.run(moved_to))
    finally:  # Also after Ctrl-C: for the records that were consumed until then.
        test.report()


class _Test:
    def __init__(self, options: Namespace, config: dict[str, object], count: Counter, out: Output) -> None:
        self._options = options
        self._config = config
        self._count = count
        self._out = out
        self._totals = ConsumerTotals()
        self._polls = 0
        self._joining_since: float | None = None
        self._ended: float | None = None

    async def run(self, moved_to: Callable[[float], None]) -> None:
        from headrace import AsyncConsumer

        async with AsyncConsumer(config=self._config) as consumer:
            topics = [] if self._options.topic is None else [self._options.topic]
            try:
                consumer.subscribe(
                    topics, pattern=self._options.include, on_assigned=self._assigned, on_revoked=self._revoked
                )
            except ValueError as error:
                raise UsageError(str(error)) from None
            self._begin()
            try:
                await self._consume(consumer, moved_to)
            finally:
                self._ended_s, self._ended = time(), monotonic()

    async def _consume(self, consumer: AsyncConsumer, moved_to: Callable[[float], None]) -> None:
        wanted, loop = self._options.num_records, asyncio.get_running_loop()
        last = monotonic()
        counting: asyncio.Future[None] | None = None
        while self._totals.record_count < wanted:
            batches = await consumer.poll_batches(_POLL_MS, max_bytes=_POLL_BYTES)
            if counting is not None:
                await counting
                counting = None
            now = monotonic()
            if batches:
                self._polls += 1
                last = now
                counting = loop.run_in_executor(None, self._add, batches)
                if self._totals.record_count + sum(one.batch.header.record_count for one in batches) >= wanted:
                    await counting
            elif (now - last) * 1000 > self._options.timeout:
                self._warn_of_timeout()
                return
            moved_to(self._totals.record_count)
            self._report_interval(now)

    def _begin(self) -> None:
        if not (self._options.hide_header or self._out.as_json):
            detailed = self._options.show_detailed_stats
            say_above_bar(self._out, ", ".join(ConsumerReport.DETAILED_HEADER if detailed else ConsumerReport.HEADER))
        self._began_s = time()
        self._began = self._joining_since = monotonic()
        self._reported, self._reported_totals = self._began, self._totals.copy()

    def _add(self, batches: Sequence[BatchToRead]) -> None:
        counted = self._count(batches)
        self._totals.record_count += counted.record_count
        self._totals.total_bytes += counted.size_bytes

    def _assigned(self, _: object) -> None:
        if self._joining_since is not None:
            self._totals.rebalance_ms += (monotonic() - self._joining_since) * 1000
            self._joining_since = None

    def _revoked(self, _: object) -> None:
        self._joining_since = monotonic()

    def _warn_of_timeout(self) -> None:
        sys.stdout.flush()
        sys.stderr.write(
            "WARNING: Exiting before consuming the expected number of records: timeout "
            f"({self._options.timeout} ms) exceeded. You can use the --timeout option to increase the timeout.\n"
        )

    # -- output

    def _report_interval(self, now: float) -> None:
        elapsed_ms = (now - self._reported) * 1000
        if not self._options.show_detailed_stats or elapsed_ms < self._options.reporting_interval:
            return
        if self._joining_since is not None:  # The duration of the rebalance is known at its end.
            return
        numbers = ConsumerReport.numbers(self._totals, self._reported_totals, elapsed_ms)
        moment = date_text(time(), self._options.date_format)
        if self._out.as_json:
            self._out.show({"time": moment, "threadId": 0, **numbers}, "")
        else:
            say_above_bar(self._out, ConsumerReport.line([moment, 0], numbers))
        self._reported, self._reported_totals = now, self._totals.copy()

    def report(self) -> None:
        if self._ended is None:  # The test did not begin.
            return
        if not self._options.show_detailed_stats:
            numbers = ConsumerReport.numbers(self._totals, ConsumerTotals(), (self._ended - self._began) * 1000)
            times = [date_text(moment, self._options.date_format) for moment in (self._began_s, self._ended_s)]
            self._out.show(
                {"start.time": times[0], "end.time": times[1], **numbers}, ConsumerReport.line(times, numbers)
            )
        if self._options.print_metrics:
            metrics = {
                "records-consumed-total": float(self._totals.record_count),
                "bytes-consumed-total": float(self._totals.total_bytes),
                "poll-total": float(self._polls),
                "records-per-poll-avg": self._totals.record_count / max(1, self._polls),
            }
            lines = metrics_lines("consumer-fetch-manager-metrics", str(self._config["client.id"]), metrics)
            self._out.show({"metrics": metrics}, lines)
