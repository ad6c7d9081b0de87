"""The micro-batches of a stream: with a broker, without Spark."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from headrace import Admin, Producer, TopicPartition
from headrace.pipeline.progress.data_loss import DataLost
from headrace.pipeline.progress.ranges import OffsetRange
from headrace.pipeline.spark.source.options import SourceOptions
from headrace.pipeline.spark.source.range_reader import COLUMNS
from headrace.pipeline.spark.source.stream_reader import StreamReader

ALL = ReadAllAvailable()


@pytest.fixture
def log(kafka, request):
    """A topic of its own with two partitions, of 30 and 10 records."""
    log = Log(kafka.bootstrap_servers, f"t{abs(hash(request.node.name))}")
    log.create()
    log.produce(0, 30)
    log.produce(1, 10)
    return log


class Log:
    def __init__(self, servers: str, topic: str) -> None:
        self.servers, self.topic = servers, topic

    def create(self, partitions: int = 2) -> None:
        with Admin(bootstrap_servers=self.servers) as admin:
            admin.create_topic(self.topic, num_partitions=partitions)

    def produce(self, partition: int, count: int) -> None:
        with Producer(bootstrap_servers=self.servers) as producer:
            for _ in range(count):
                producer.send(self.topic, b"x", partition=partition)

    def at(self, *offsets: int) -> dict[str, dict[str, int]]:
        return {self.topic: {str(partition): offset for partition, offset in enumerate(offsets)}}

    def reader(self, now_s=lambda: 0.0, **options: str) -> StreamReader:
        given = {"kafka.bootstrap.servers": self.servers, "subscribe": self.topic, "startingoffsets": "earliest"}
        return StreamReader(SourceOptions.parse({**given, **options}, is_stream=True), COLUMNS, now_s=now_s)

    def ranges(self, reader: StreamReader, start, end) -> list[OffsetRange]:
        return [one.offset_range for one in reader.partitions(start, end)]


def test_a_stream_begins_where_it_is_told_and_takes_all_there_is(log):
    reader = log.reader()
    assert reader.initialOffset() == log.at(0, 0)
    assert reader.getDefaultReadLimit() == ALL
    assert reader.latestOffset(log.at(0, 0), ALL) == log.at(30, 10)
    assert reader.reportLatestOffset() == log.at(30, 10)
    assert reader.latestOffset(log.at(30, 10), ALL) == log.at(30, 10)
    assert log.ranges(reader, log.at(0, 5), log.at(30, 10)) == [
        OffsetRange(log.topic, 0, 0, 30),
        OffsetRange(log.topic, 1, 5, 10),
    ]
    assert log.ranges(reader, log.at(30, 10), log.at(30, 10)) == []
    assert log.reader(startingoffsets="latest").initialOffset() == log.at(30, 10)
    reader.stop()


def test_a_micro_batch_is_bounded_in_proportion(log):
    reader = log.reader(maxoffsetspertrigger="8")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(8)
    assert reader.latestOffset(log.at(0, 0), limit) == log.at(6, 2)
    assert reader.latestOffset(log.at(28, 9), limit) == log.at(30, 10)
    assert reader.latestOffset(log.at(0, 0), ALL) == log.at(30, 10)
    reader.stop()


def test_a_micro_batch_waits_for_enough_but_not_forever(log):
    now_s = 100.0
    reader = log.reader(lambda: now_s, minoffsetspertrigger="15", maxtriggerdelay="60s")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(15)
    assert reader.latestOffset(log.at(29, 10), limit) == log.at(30, 10)  # the first does not wait
    assert reader.latestOffset(log.at(20, 6), limit) == log.at(20, 6)
    assert reader.latestOffset(log.at(20, 5), limit) == log.at(30, 10)
    now_s += 59
    assert reader.latestOffset(log.at(20, 6), limit) == log.at(20, 6)
    now_s += 1
    assert reader.latestOffset(log.at(20, 6), limit) == log.at(30, 10)
    assert reader.latestOffset(log.at(20, 6), limit) == log.at(20, 6)
    reader.stop()


def test_available_now_ends_where_the_log_ended(log):
    reader = log.reader(maxoffsetspertrigger="20", minoffsetspertrigger="20")
    limit = reader.getDefaultReadLimit()
    reader.prepareForTriggerAvailableNow()
    log.produce(0, 5)
    assert reader.latestOffset(log.at(0, 0), limit) == log.at(15, 5)
    assert reader.latestOffset(log.at(29, 10), limit) == log.at(30, 10)
    assert reader.latestOffset(log.at(30, 10), limit) == log.at(30, 10)
    reader.stop()


def test_a_new_partition_is_read_from_its_start(log):
    reader = log.reader()
    assert reader.latestOffset(log.at(30, 10), ALL) == log.at(30, 10)
    with Admin(bootstrap_servers=log.servers) as admin:
        admin.create_partitions({log.topic: 3}).all()
    log.produce(2, 4)
    assert reader.latestOffset(log.at(30, 10), ALL) == log.at(30, 10, 4)
    assert log.ranges(reader, log.at(30, 10), log.at(30, 10, 4)) == [OffsetRange(log.topic, 2, 0, 4)]
    reader.stop()


def test_what_retention_took_is_lost(log, caplog):
    with Admin(bootstrap_servers=log.servers) as admin:
        admin.delete_records({TopicPartition(log.topic, 0): 12}).all()
    strict, lenient = log.reader(), log.reader(failondataloss="false")
    with pytest.raises(DataLost, match="begins at offset 12 now, but the stream has read it only up to 3"):
        strict.partitions(log.at(3, 10), log.at(30, 10))
    assert log.ranges(strict, log.at(12, 10), log.at(30, 10)) == [OffsetRange(log.topic, 0, 12, 30)]
    assert log.ranges(lenient, log.at(3, 10), log.at(30, 10)) == [OffsetRange(log.topic, 0, 12, 30)]
    assert "continuing without these records" in caplog.text
    strict.stop()
    lenient.stop()


def test_a_topic_that_is_gone_or_made_anew_is_lost_data(log):
    strict, lenient = log.reader(), log.reader(failondataloss="false")
    with Admin(bootstrap_servers=log.servers) as admin:
        admin.delete_topics([log.topic]).all()
    with pytest.raises(DataLost, match="no topic"):
        strict.latestOffset(log.at(30, 10), ALL)
    assert lenient.latestOffset(log.at(30, 10), ALL) == log.at(30, 10)
    assert log.ranges(lenient, log.at(30, 10), log.at(30, 10)) == []
    log.create()
    log.produce(0, 2)
    with pytest.raises(DataLost, match="ends at offset 2 now, but the stream has read it up to 30"):
        strict.latestOffset(log.at(30, 10), ALL)
    assert lenient.latestOffset(log.at(30, 10), ALL) == log.at(2, 0)
    assert log.ranges(lenient, log.at(30, 10), log.at(2, 0)) == [OffsetRange(log.topic, 0, 0, 2)]
    strict.stop()
    lenient.stop()


def test_a_topic_made_anew_is_known_by_its_id(log, caplog):
    strict, lenient = log.reader(), log.reader(failondataloss="false")
    for reader in (strict, lenient):
        assert reader.latestOffset(log.at(0, 0), ALL) == log.at(30, 10)
    with Admin(bootstrap_servers=log.servers) as admin:
        admin.delete_topics([log.topic]).all()
    log.create()
    log.produce(0, 40)
    log.produce(1, 40)
    with pytest.raises(DataLost, match="was deleted and created again"):
        strict.latestOffset(log.at(30, 10), ALL)
    assert lenient.latestOffset(log.at(30, 10), ALL) == log.at(40, 40)
    assert "was deleted and created again" in caplog.text
    strict.stop()
    lenient.stop()


def test_other_topics_go_on_without_one_that_is_gone(log):
    other = Log(log.servers, f"{log.topic}-other")
    other.create(1)
    reader = log.reader(subscribe=f"{log.topic},{other.topic}", failondataloss="false")
    assert reader.latestOffset(log.at(30, 10) | other.at(0), ALL) == log.at(30, 10) | other.at(0)
    with Admin(bootstrap_servers=log.servers) as admin:
        admin.delete_topics([log.topic]).all()
    other.produce(0, 3)
    end = reader.latestOffset(log.at(30, 10) | other.at(0), ALL)
    assert end == log.at(30, 10) | other.at(3)
    assert log.ranges(reader, log.at(30, 10) | other.at(0), end) == [OffsetRange(other.topic, 0, 0, 3)]
    reader.stop()


def test_a_partition_that_vanishes_is_lost_data(log):
    reader = log.reader()
    with pytest.raises(DataLost, match=r"-2 no longer exists, but the stream has read it up to offset 7"):
        reader.partitions(log.at(0, 0, 7), log.at(30, 10))
    reader.stop()


def test_progress_is_committed_to_a_group(log, caplog):
    reader = log.reader(commitgroup="lag")
    with Admin(bootstrap_servers=log.servers) as admin:
        reader.commit(log.at(20, 10))
        assert admin.list_group_offsets("lag")[TopicPartition(log.topic, 0)].offset == 20
        # All before the start is done when Spark asks how far to go.
        reader.latestOffset(log.at(30, 10), ALL)
        assert admin.list_group_offsets("lag")[TopicPartition(log.topic, 0)].offset == 30
    reader.stop()
    log.reader().commit(log.at(1, 1))  # without a group, nothing


def test_a_fresh_reader_can_be_pickled_for_its_tasks(log):
    reader = log.reader()
    again = pickle.loads(pickle.dumps(StreamReader(reader._options, COLUMNS)))
    (first, _) = reader.partitions(log.at(0, 0), log.at(30, 10))
    assert sum(batch.num_rows for batch in again.read(first)) == 30
    reader.stop()
