"""The numbers and lines of the perf tests."""

from headrace.tools.perf.stats import ConsumerReport, ConsumerTotals, Latencies, ProducerReport


def filled(*samples):
    latencies = Latencies()
    for latency_ms, count in samples:
        latencies.add(latency_ms, count, count * 100)
    return latencies


def test_percentiles_count_records_and_not_batches():
    latencies = filled((10, 90), (20, 9), (30, 1))
    assert latencies.percentiles_ms((0.5, 0.9, 0.91, 0.99, 0.999)) == [10, 10, 20, 20, 30]
    assert (latencies.average_ms, latencies.max_ms, latencies.record_count) == (11.1, 30, 100)


def test_nothing_was_sent():
    assert Latencies().percentiles_ms() == [0, 0, 0, 0]
    assert ProducerReport.total(Latencies(), 0.0).startswith("0 records sent, 0.000000 records/sec (0.00 MB/sec), 0.00")


def test_memory_stays_bounded():
    latencies = Latencies(max_samples=100)
    for number in range(10_000):
        latencies.add(number % 100, 1, 1)
    assert len(latencies._weights) < 100
    assert latencies.record_count == 10_000
    assert abs(latencies.percentiles_ms((0.5,))[0] - 50) < 10


def test_the_producers_lines_are_kafkas():
    latencies = filled((1.26, 50_000), (9, 50_000))
    assert ProducerReport.window(latencies, 0.5) == (
        "100000 records sent, 200000.0 records/sec (19.07 MB/sec), 5.1 ms avg latency, 9.0 ms max latency."
    )
    assert ProducerReport.total(latencies, 0.5) == (
        "100000 records sent, 200000.000000 records/sec (19.07 MB/sec), 5.13 ms avg latency, 9.00 ms max latency, "
        "1 ms 50th, 9 ms 95th, 9 ms 99th, 9 ms 99.9th."
    )
    assert ProducerReport.as_json(latencies, 0.5)["latency.99.9th.ms"] == 9


def test_the_consumers_columns_are_kafkas():
    now, before = ConsumerTotals(), ConsumerTotals()
    now.record_count, now.total_bytes, now.rebalance_ms = 150_021, 150_021 * 100, 3675
    numbers = ConsumerReport.numbers(now, before, 4067)
    assert ConsumerReport.line(["a", "b"], numbers) == (
        "a, b, 14.3071, 3.5179, 150021, 36887.3863, 3675, 392, 36.4977, 382706.6327"
    )
    assert list(numbers) == list(ConsumerReport.HEADER[2:])


def test_an_interval_has_the_rates_of_what_came_in_it():
    before = ConsumerTotals()
    before.record_count, before.total_bytes, before.rebalance_ms = 1000, 100_000, 50
    now = before.copy()
    now.record_count, now.total_bytes = 3000, 300_000
    numbers = ConsumerReport.numbers(now, before, 1000)
    assert (numbers["data.consumed.in.nMsg"], numbers["nMsg.sec"], numbers["rebalance.time.ms"]) == (3000, 2000, 0)
    assert ConsumerReport.numbers(now, now, 0)["nMsg.sec"] == 0
