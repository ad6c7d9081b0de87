"""OTLP to points, within bounds of time and memory."""

import time
import tracemalloc
import zlib
from contextlib import suppress

import pytest
from telemetry_harness import CUMULATIVE, counter, gauge, histogram, otlp

from headrace.broker.telemetry.otlp import MAX_DECOMPRESSED_BYTES, MAX_POINTS, decode_push
from headrace.broker.telemetry.points import Distribution, Point, PointKind
from headrace.protocol.compression import compress
from headrace.protocol.errors import InvalidRecord, TelemetryTooLarge
from headrace.protocol.records import Codec


def decoded(data, codec=Codec.none, limit_bytes=MAX_DECOMPRESSED_BYTES, asks_for=lambda _: True):
    return decode_push(codec, data, limit_bytes, asks_for)


def test_gauges_sums_and_histograms():
    data = otlp(
        gauge("org.apache.kafka.consumer.lag", 7.5, topic="t", partition=3, ok=True),
        counter("org.apache.kafka.producer.record.send.total", 4),
        counter("sum", 5, CUMULATIVE, monotonic=False),
        histogram("latency", [1.0, 2.0], [1, 2, 3], 9.5),
        group_id="g",
    )
    group = ("group_id", "g")
    assert decoded(data) == [
        Point(
            "org_apache_kafka_consumer_lag",
            PointKind.GAUGE,
            (group, ("ok", "true"), ("partition", "3"), ("topic", "t")),
            7.5,
            False,
        ),
        Point("org_apache_kafka_producer_record_send", PointKind.COUNTER, (group,), 4.0, True),
        Point("kafka_client_sum", PointKind.GAUGE, (group,), 5.0, False),
        Point("kafka_client_latency", PointKind.HISTOGRAM, (group,), Distribution(6, 9.5, (1.0, 2.0), (1, 2, 3)), True),
    ]


@pytest.mark.parametrize("codec", Codec)
def test_every_codec(codec):
    assert len(decoded(compress(codec, otlp(gauge("a", 1.0))), codec)) == 1


def test_metrics_that_nobody_has_asked_for_are_left_out():
    data = otlp(gauge("a.b", 1.0), gauge("c", 2.0))
    assert [point.name for point in decoded(data, asks_for=lambda name: name.startswith("a."))] == ["kafka_client_a_b"]


def test_labels_that_prometheus_does_not_allow():
    (point,) = decoded(otlp(gauge("ä b", 1.0, **{"__name__": "x", "9": "nine", "a-b": "v" * 999})))
    assert point.name == "kafka_client___b"
    assert [name for name, _ in point.labels] == ["a_b", "label_9", "name__"]
    assert len(dict(point.labels)["a_b"]) == 256


@pytest.mark.parametrize(
    "garbage",
    [b"\x0a", b"\x0a\xff\xff\xff\xff\x0f", b"\x0f", b"\x09\x00", b"\xff" * 20, b"\x0a\x02\x12\x7f", b"not metrics"],
)
def test_bytes_that_are_not_metrics(garbage):
    with pytest.raises(InvalidRecord):
        decoded(garbage)


def test_a_metric_that_protobuf_cannot_read():
    with pytest.raises(InvalidRecord):
        decoded(nested(1, 2, 2, content=b"\x0a\xff"))


def test_a_histogram_whose_buckets_do_not_fit():
    with pytest.raises(InvalidRecord):
        decoded(otlp(histogram("h", [1.0, 2.0], [1], 1.0)))


@pytest.mark.parametrize("codec", [Codec.gzip, Codec.snappy, Codec.lz4, Codec.zstd])
def test_a_decompression_bomb_takes_no_memory(codec):
    large = bytes(64 * 1024 * 1024)
    bomb = zlib.compress(large, 9, wbits=31) if codec is Codec.gzip else compress(codec, large)
    del large
    tracemalloc.start()
    try:
        with pytest.raises(TelemetryTooLarge):
            decoded(bomb, codec)
        assert tracemalloc.get_traced_memory()[1] < 3 * MAX_DECOMPRESSED_BYTES
    finally:
        tracemalloc.stop()


def nested(*fields, content):
    """A message inside of messages, given the numbers of the fields from the outermost to the innermost."""
    for number in reversed(fields):
        size, rest = b"", len(content)
        while rest > 0x7F:
            size, rest = size + bytes([rest & 0x7F | 0x80]), rest >> 7
        content = bytes([number << 3 | 2]) + size + bytes([rest]) + content
    return content


EMPTY = b"\x0a\x00" * (2 * 1024 * 1024)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(EMPTY, id="resources"),
        pytest.param(nested(1, content=b"\x12\x00" * (2 * 1024 * 1024)), id="scopes"),
        pytest.param(nested(1, 2, content=b"\x12\x00" * (2 * 1024 * 1024)), id="metrics"),
        pytest.param(nested(1, 2, 2, 5, content=EMPTY), id="points"),
        pytest.param(nested(1, 1, content=EMPTY), id="attributes"),
    ],
)
def test_millions_of_empty_messages_are_refused_or_passed_over(data):
    """protobuf makes an object of each; 4 MiB of them took 280 ms and 135 MB, with the interpreter's lock."""
    started = time.thread_time()
    with suppress(TelemetryTooLarge):
        assert decoded(data) == []
    assert time.thread_time() - started < 2


def test_a_push_has_a_largest_number_of_points():
    data = otlp(*(gauge(f"m{number}", 1.0) for number in range(MAX_POINTS + 10)))
    assert len(decoded(data)) == MAX_POINTS
