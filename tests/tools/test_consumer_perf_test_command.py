"""consumer-perf-test: counts what is there, in Kafka's columns."""

import re
import socket

import pytest

from headrace import Producer
from headrace.client.consumer.fetch_positions import BatchToRead
from headrace.client.consumer.fetched_batches import FetchedBatch
from headrace.client.types import TopicPartition
from headrace.protocol.batch_building import build_batch
from headrace.protocol.errors import CorruptMessage, KafkaError
from headrace.protocol.record_body import Record
from headrace.protocol.records import Codec, compute_crc, read_header
from headrace.tools.consumer_perf_test import main
from headrace.tools.perf.counting import count_by_kernel, count_by_record, counter
from headrace.tools.perf.options import date_text

HEADER = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, "
    "fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}"
NUMBERS = r"\d+\.\d{4}, \d+\.\d{4}, (\d+), \d+\.\d{4}, \d+, \d+, \d+\.\d{4}, \d+\.\d{4}"


@pytest.fixture(scope="module")
def topic(broker):
    with Producer(bootstrap_servers=broker.bootstrap_servers, compression_type="lz4") as producer:
        for number in range(3000):
            producer.send("measured", b"v" * 10, key=b"k%d" % (number % 10))
    return "measured"


@pytest.fixture
def perf(tool, topic):
    def run(*arguments):
        return tool("consumer-perf-test", *arguments)

    return run


def test_the_line_is_kafkas(perf):
    done = perf("--topic", "measured", "--messages", 3000)
    assert (done.code, done.err) == (0, "")
    header, line = done.lines
    assert header == HEADER
    assert re.fullmatch(rf"{TIME}, {TIME}, {NUMBERS}", line)[1] == "3000"


def test_machines_get_an_object(perf):
    shown = perf("--topic", "measured", "--num-records", 3000, "--json").value
    assert shown["data.consumed.in.nMsg"] == 3000
    assert shown["data.consumed.in.MB"] == 3000 * 12 / 2**20
    assert shown["fetch.time.ms"] >= 0


def test_a_pattern_a_group_and_no_header(perf):
    done = perf("--include", "meas.*", "--messages", 100, "--group", "perf", "--hide-header", "--fetch-size", 1000)
    assert len(done.lines) == 1
    rest = perf("--topic", "measured", "--messages", 1, "--group", "perf", "--timeout", 1500, "--hide-header")
    assert int(re.search(NUMBERS, rest.out)[1]) < 3000  # it goes on where the group was


def test_intervals(perf):
    # One record more than there is, so that it waits for the timeout.
    arguments = ("--show-detailed-stats", "--reporting-interval", 100, "--timeout", 1500)
    done = perf("--topic", "measured", "--messages", 3001, *arguments)
    assert done.lines[0].startswith("time, threadId, data.consumed.in.MB")
    assert re.fullmatch(rf"{TIME}, 0, {NUMBERS}", done.lines[-1])[1] == "3000"
    assert len(done.lines) > 3


def test_too_few_records_are_a_warning(perf):
    done = perf("--topic", "measured", "--messages", 3001, "--timeout", 1500)
    assert done.code == 0
    assert done.err.startswith("WARNING: Exiting before consuming the expected number of records: timeout (1500 ms)")
    assert re.search(NUMBERS, done.lines[1])[1] == "3000"


def test_metrics(perf):
    done = perf("--topic", "measured", "--messages", 3000, "--print-metrics")
    assert re.search(r":records-consumed-total:\{client-id=perf-consumer-client\} +: 3000\.000", done.out)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--messages", "1"], "Exactly one of the following arguments is required: [topic], [include]"),
        (["--topic", "measured"], "--num-records"),
        (["--topic", "measured", "--messages", "0"], "'0' is not a number above 0"),
        (["--include", "[", "--messages", "1"], "'[' is not a regular expression"),
        (["--topic", "measured", "--messages", "1", "--command-property", "nonsense=1"], "has no option nonsense"),
    ],
)
def test_wrong_use(perf, arguments, said):
    done = perf(*arguments)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_a_broker_that_is_not_there_is_one_line(capsys):
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        arguments = ["--bootstrap-server", f"127.0.0.1:{reserved.getsockname()[1]}", "--timeout", "500"]
        assert main([*arguments, "--topic", "t", "--messages", "1"]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("headrace consumer-perf-test: ")
    assert (captured.out, captured.err.count("\n")) == ("", 1)


# -- what is counted


def fetched(data, from_offset=0):
    batch = FetchedBatch(read_header(data), memoryview(data), True)
    return BatchToRead(TopicPartition("t", 0), batch, from_offset)


RECORDS = [
    Record(10, 1, b"key", b"value"),
    Record(11, 2, None, b"x" * 300),
    Record(14, 3, b"k", None, (("h", b"1"),)),
]


@pytest.mark.parametrize("count", [count_by_kernel, count_by_record])
def test_records_and_their_bytes(count):
    plain, packed = (bytes(build_batch(RECORDS, base_offset=10, codec=codec)) for codec in (Codec.none, Codec.zstd))
    assert count([]) == (0, 0)
    assert count([fetched(plain)]) == (3, 309)
    assert count([fetched(plain), fetched(packed)]) == (6, 618)
    assert count([fetched(plain, 11)]) == (2, 301)
    assert count([fetched(packed, 12)]) == (1, 1)


@pytest.mark.parametrize("count", [count_by_kernel, count_by_record])
def test_what_is_damaged_does_not_count(count):
    batch = bytearray(build_batch(RECORDS, base_offset=10))
    batch[-1] ^= 1
    with pytest.raises(CorruptMessage):
        count([fetched(bytes(batch))])
    for at in range(61, len(batch)):
        batch = bytearray(build_batch(RECORDS, base_offset=10))
        batch[at] ^= 0x80
        batch[17:21] = compute_crc(batch, 0, len(batch)).to_bytes(4, "big")
        try:
            found = count([fetched(bytes(batch))])
        except KafkaError:
            continue
        assert found.size_bytes <= len(batch)


def test_the_kernel_is_taken_where_there_is_one():
    assert counter() is count_by_kernel


def test_dates_in_javas_letters():
    moment = 1_794_793_270.4637
    assert re.fullmatch(r"2026-11-\d\d \d\d:\d\d:10:464", date_text(moment, "yyyy-MM-dd HH:mm:ss:SSS"))
    assert date_text(moment, "ss.SSS") == "10.464"
