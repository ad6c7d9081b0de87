"""Measures how fast the console searches records, against a consumer that looks at each record in Python.

    .venv/bin/python bench/console.py [--records 5000000] [--rounds 3] [--tail-seconds 30]

The broker is a process of its own. The searches are those that the console's pages run, without a browser. Both sides
read the same topic of three partitions over the socket, and the best turn of each side counts.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import console_pages
import console_tail
import servers
from report import Row, Table

from headrace import Admin, Consumer, Producer
from headrace.client.types import TopicPartition
from headrace.console.cluster.reader import ClusterReader
from headrace.console.records.criteria import Criteria, Term
from headrace.console.records.decoding import Decoder
from headrace.console.records.filter_parser import parse_filter
from headrace.console.records.masking import Masks
from headrace.console.records.matching import Matcher
from headrace.console.records.search import Search, ranges_of

TOPIC = "console-search"
PARTITIONS = 3
VALUE_BYTES = 100
#: The text that is searched is in one of this many records.
ONE_IN = 100_000
NEEDLE = b"needle-in-a-haystack"
_TIMEOUT_SECONDS = 600.0

#: By row: what it is, the search, and how many times fewer records are read, because a turn takes longer.
SEARCHES: dict[str, tuple[str, Callable[[], Criteria], int]] = {
    "substring": ("a substring of the value", lambda: Criteria(Term("value", NEEDLE.decode(), False)), 1),
    "expression": ("an expression of RE2", lambda: Criteria(Term("value", "needle-[a-z]+-a-h", True)), 1),
    "filter": ("a filter on a JSON field", lambda: Criteria(filter=parse_filter("value.number = -1")), 10),
    "masked": ("a substring, while a field is masked", lambda: Criteria(Term("value", NEEDLE.decode(), False)), 10),
}


def rows(records: int) -> dict[str, Row]:
    return {
        key: Row(f"search of {records // share:,} records of 100 B by {what}", "records/s", ">=")
        for key, (what, _, share) in SEARCHES.items()
    }


def value(number: int) -> bytes:
    """JSON of 100 bytes."""
    has_needle = number % ONE_IN == ONE_IN // 2
    head = b'{"number": %d, "note": "%s' % (number, NEEDLE if has_needle else b"")
    return head + b"x" * (VALUE_BYTES - len(head) - 2) + b'"}'


def fill(address: str, records: int) -> None:
    with Admin(bootstrap_servers=address) as admin:
        admin.create_topic(TOPIC, num_partitions=PARTITIONS)
    with Producer(bootstrap_servers=address, linger_ms=20, batch_size=262_144, buffer_memory=256 << 20) as producer:
        for number in range(records):
            producer.send(TOPIC, value=value(number), partition=number % PARTITIONS)
        producer.flush()


async def search(address: str, key: str) -> float:
    """Records per second of one search, with the lookup of the offsets."""
    _, criteria_of, share = SEARCHES[key]
    criteria = criteria_of()
    reader = ClusterReader({"bootstrap.servers": address})
    try:
        began = time.perf_counter()
        ends = await reader.ends([TopicPartition(TOPIC, number) for number in range(PARTITIONS)])
        found = {at.partition: end for at, end in ends.items()}
        ranges = {
            number: range(offsets.start, offsets.start + len(offsets) // share)
            for number, offsets in ranges_of(found, {}, criteria).items()
        }
        decoder = Decoder(Masks(["number"] if key == "masked" else []))
        matcher = Matcher(criteria, decoder)
        made = Search(reader.fetching, TOPIC, ranges, matcher, most_records=1_000, seconds=_TIMEOUT_SECONDS)
        async for _ in made.found():
            pass
        seconds = time.perf_counter() - began
        assert made.state == "complete", made.state
        expected = {"filter": 0}.get(key, sum(len(offsets) for offsets in ranges.values()) // ONE_IN)
        assert made.found_records >= expected, (made.found_records, expected)
        return made.offsets_done / seconds
    finally:
        await reader.close()


def consume(address: str, records: int) -> float:
    """Records per second of a consumer that looks at each value."""
    with Consumer(bootstrap_servers=address) as consumer:
        partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        done = found = 0
        began = time.perf_counter()
        while done < records:
            some = consumer.poll(timeout_ms=1_000, max_records=10_000)
            found += sum(NEEDLE in record.value for record in some)
            done += len(some)
        assert found, "no record has the text"
        return done / (time.perf_counter() - began)


def tail_text(followed: console_tail.Followed | None) -> str:
    """The result of the tail in Chromium, as sentences."""
    if followed is None:
        return "There is no Chromium, so no tail was followed."
    return (
        f"Live tail of {console_tail.RECORDS_PER_SECOND:,} records/s in Chromium: {followed.received:,} of "
        f"{followed.sent:,} records shown, {followed.left_out:,} left out; the page takes {followed.page_cores:.0%} of "
        f"a core and {followed.page_mb:.0f} MB, the console {followed.console_cores:.0%} of a core."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tail-seconds", type=float, default=30.0, help="how long a tail is followed in Chromium")
    parser.add_argument("--visits", type=int, default=5, help="how often the list of topics is opened")
    parser.add_argument("--idle-seconds", type=float, default=30.0, help="how long a page is open without changes")
    options = parser.parse_args()
    table = Table(rows(options.records), peer="a consumer in Python", ours="the console")
    with tempfile.TemporaryDirectory() as folder, servers.headrace(Path(folder)) as server:
        fill(server.address, options.records)
        peer = max(consume(server.address, options.records) for _ in range(options.rounds))
        for key in SEARCHES:
            table.put("apache", key, peer)
            table.put("headrace", key, max(asyncio.run(search(server.address, key)) for _ in range(options.rounds)))
        followed = console_tail.follow(server.address, Path(folder), options.tail_seconds)
    print(table.markdown())
    print(tail_text(followed))
    print(console_pages.pages_text(console_pages.measure(options.visits, options.idle_seconds)))


if __name__ == "__main__":
    main()
