"""The records that a task reads of the log, and the ranges of a batch: with a broker, without Spark."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime
from itertools import count

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from headrace import Admin, Producer, TopicPartition
from headrace.client.errors import BrokerUnreachable, KafkaTimeout, UnknownTopic
from headrace.pipeline.progress.data_loss import DataLost
from headrace.pipeline.progress.ranges import OffsetRange
from headrace.pipeline.spark.options import BadOption
from headrace.pipeline.spark.source.data_source import HeadraceSource, LogReader, spark_schema
from headrace.pipeline.spark.source.log_offsets import LogOffsets, consumer_for
from headrace.pipeline.spark.source.options import SourceOptions
from headrace.pipeline.spark.source.range_reader import COLUMNS, RangeReader, read_range

START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def broker(kafka):
    servers = {"bootstrap_servers": kafka.bootstrap_servers}
    with Admin(**servers) as admin:
        admin.create_topic("t", num_partitions=2)
        admin.create_topic("cut", num_partitions=1)
        admin.create_topic("txn", num_partitions=1)
    with Producer(**servers) as producer:
        for number in range(20):
            at_ms = START_MS + number
            producer.send("t", b"v%d" % number, partition=number % 2, timestamp_ms=at_ms, headers={"h": b"x"})
            producer.send("cut", b"v%d" % number)
    with Admin(**servers) as admin:
        admin.delete_records({TopicPartition("cut", 0): 5}).all()
    _write_transactions(kafka.bootstrap_servers)
    return kafka


def _write_transactions(servers: str) -> None:
    """Two committed, then one aborted: offsets 0-1, marker 2, 3-4, marker 5, 6-7 aborted, marker 8."""
    with Producer(bootstrap_servers=servers, transactional_id="x") as producer:
        producer.init_transactions()
        for number in range(3):
            producer.begin_transaction()
            for place in range(2):
                producer.send("txn", b"%d.%d" % (number, place))
            producer.flush()
            producer.commit_transaction() if number < 2 else producer.abort_transaction()


def options_of(broker, is_stream=False, **given) -> SourceOptions:
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    return SourceOptions.parse({**servers, "subscribe": "t", **given}, is_stream=is_stream)


def values(options, wanted) -> list[bytes]:
    return [value for batch in read_range(options, wanted) for value in batch.column("value").to_pylist()]


def planned(reader: LogReader) -> list[OffsetRange]:
    return [one.offset_range for one in reader.partitions()]


def test_a_task_reads_its_range_and_nothing_else(broker):
    assert values(options_of(broker), OffsetRange("t", 1, 3, 6)) == [b"v7", b"v9", b"v11"]
    assert values(options_of(broker), OffsetRange("t", 1, 3, 3)) == []


@pytest.mark.parametrize("include_headers", [False, True])
def test_columns_are_those_of_sparks_connector(broker, include_headers):
    columns = (*COLUMNS, "headers") if include_headers else COLUMNS
    (batch,) = read_range(options_of(broker), OffsetRange("t", 0, 2, 3), columns=columns)
    assert batch.schema.equals(to_arrow_schema(spark_schema(include_headers=include_headers), timezone="UTC"))
    row = {
        "key": None, "value": b"v4", "topic": "t", "partition": 0, "offset": 2,
        "timestamp": datetime.fromtimestamp(START_MS / 1000, UTC).replace(microsecond=4000), "timestampType": 0,
    }  # fmt: skip
    assert batch.to_pylist() == [{**row, "headers": [{"key": "h", "value": b"x"}]} if include_headers else row]


def test_only_the_columns_that_are_wanted_are_read(broker):
    (batch,) = read_range(options_of(broker), OffsetRange("t", 0, 2, 4), columns=("offset", "value"))
    assert batch.to_pylist() == [{"offset": 2, "value": b"v4"}, {"offset": 3, "value": b"v6"}]


def test_a_schema_may_name_some_columns():
    options = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "t"}
    source, schema = HeadraceSource(options), StructType([StructField("value", BinaryType())])
    assert source.reader(schema)._columns == ("value",)
    assert source.streamReader(schema)._columns == ("value",)
    with pytest.raises(BadOption, match="a topic has no column value string"):
        source.reader(StructType([StructField("value", StringType())]))


def test_a_range_may_end_in_markers_and_aborted_records(broker):
    committed = options_of(broker, **{"kafka.isolation.level": "read_committed"})
    assert values(committed, OffsetRange("txn", 0, 0, 9)) == [b"0.0", b"0.1", b"1.0", b"1.1"]
    assert values(committed, OffsetRange("txn", 0, 4, 6)) == [b"1.1"]
    assert values(committed, OffsetRange("txn", 0, 5, 9)) == []
    assert values(options_of(broker), OffsetRange("txn", 0, 5, 9)) == [b"2.0", b"2.1"]


def test_offsets_that_are_gone_are_an_error_or_a_warning(broker, caplog):
    with pytest.raises(DataLost, match="offsets 2 to 4 of cut-0 are gone: the log begins at offset 5 now"):
        values(options_of(broker), OffsetRange("cut", 0, 2, 8))
    lenient = options_of(broker, failondataloss="false")
    assert values(lenient, OffsetRange("cut", 0, 2, 8)) == [b"v5", b"v6", b"v7"]
    assert values(lenient, OffsetRange("cut", 0, 2, 4)) == []
    assert "continuing without these records" in caplog.text


def test_offsets_that_never_were_are_lost_data(broker):
    with pytest.raises(DataLost, match="offsets 20 to 24 of cut-0 are gone: the log ends at offset 20 now"):
        values(options_of(broker), OffsetRange("cut", 0, 18, 25))
    assert values(options_of(broker, failondataloss="false"), OffsetRange("cut", 0, 18, 25)) == [b"v18", b"v19"]
    assert values(options_of(broker, failondataloss="false"), OffsetRange("cut", 0, 30, 35)) == []


def test_a_reader_follows_several_partitions(broker):
    with RangeReader(options_of(broker), columns=("topic", "partition", "offset")) as reader:

        def places(*ranges) -> set[tuple[str, int, int]]:
            rows = reader.table(ranges).to_pylist()
            found = {(row["topic"], row["partition"], row["offset"]) for row in rows}
            assert len(found) == len(rows)
            return found

        def expected(*ranges) -> set[tuple[str, int, int]]:
            return {(one.topic, one.partition, at) for one in ranges for at in range(one.start, one.end)}

        first = OffsetRange("t", 0, 0, 4), OffsetRange("t", 1, 2, 9), OffsetRange("cut", 0, 5, 20)
        following = OffsetRange("t", 0, 4, 10), OffsetRange("t", 1, 9, 10)
        back = OffsetRange("cut", 0, 7, 9), OffsetRange("t", 1, 0, 0)
        for ranges in (first, following, back, (), first):
            assert places(*ranges) == expected(*ranges)


class Stuck:
    """A consumer to whom nothing comes, of a partition that has ten records."""

    def assign(self, partitions) -> None: ...
    def resume(self, *partitions) -> None: ...
    def seek(self, partition, offset) -> None: ...

    def poll_batches(self, timeout_ms, *, max_bytes):
        return []

    def position(self, partition):
        return 3

    def beginning_offsets(self, partition):
        return {partition: 0}

    def end_offsets(self, partition):
        return {partition: 10}


def test_a_task_does_not_wait_forever():
    options = SourceOptions(client={}, poll_timeout_ms=5_000)
    seconds = count()
    reader = RangeReader(options, consumer=Stuck(), now_s=lambda: next(seconds))
    with pytest.raises(KafkaTimeout, match=r"no record of t-0 \[3, 10\) arrived after offset 3 for 5000 ms"):
        reader.table([OffsetRange("t", 0, 3, 10)])


def test_a_log_that_does_not_answer_is_asked_again(broker, monkeypatch, caplog):
    failures, waits = [KafkaTimeout("slow"), BrokerUnreachable("gone")], []

    def consumer(options):
        if failures:
            raise failures.pop()
        return consumer_for(options)

    monkeypatch.setattr("headrace.pipeline.spark.source.log_offsets.consumer_for", consumer)
    log = LogOffsets(options_of(broker), sleep=waits.append)
    assert log.latest([TopicPartition("t", 0)]) == {TopicPartition("t", 0): 10}
    assert waits == [0.01, 0.01]
    log.close()
    failures += [KafkaTimeout("slow")] * 4
    with pytest.raises(KafkaTimeout, match="slow"):
        log.partitions()


# -- planning


def test_a_batch_reads_all_partitions(broker):
    assert planned(LogReader(options_of(broker), COLUMNS)) == [OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 0, 10)]


def test_a_batch_begins_and_ends_where_it_is_told(broker):
    starts, ends = json.dumps({"t": {"0": 3, "1": -2}}), json.dumps({"t": {"0": -1, "1": 4}})
    reader = LogReader(options_of(broker, startingoffsets=starts, endingoffsets=ends), COLUMNS)
    assert planned(reader) == [OffsetRange("t", 0, 3, 10), OffsetRange("t", 1, 0, 4)]


def test_a_batch_may_be_of_some_time(broker):
    reader = LogReader(
        options_of(broker, startingtimestamp=str(START_MS + 3), endingtimestamp=str(START_MS + 8)), COLUMNS
    )
    assert planned(reader) == [OffsetRange("t", 0, 2, 4), OffsetRange("t", 1, 1, 4)]
    late = options_of(broker, startingtimestamp=str(START_MS + 19))
    with pytest.raises(BadOption, match="t-0 has no record at or after"):
        planned(LogReader(late, COLUMNS))
    late = options_of(
        broker, startingtimestamp=str(START_MS + 19), startingoffsetsbytimestampstrategy="latest"
    )  # the other partition is at its end
    assert planned(LogReader(late, COLUMNS)) == [OffsetRange("t", 1, 9, 10)]


def test_partitions_may_be_assigned_or_found_by_a_pattern(broker):
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    assigned = SourceOptions.parse({**servers, "assign": '{"t": [1]}'}, is_stream=False)
    assert planned(LogReader(assigned, COLUMNS)) == [OffsetRange("t", 1, 0, 10)]
    matching = SourceOptions.parse({**servers, "subscribepattern": "t|cu."}, is_stream=False)
    assert {one.topic for one in planned(LogReader(matching, COLUMNS))} == {"t", "cut"}


def test_what_is_not_there_is_told_by_its_name(broker):
    with pytest.raises(UnknownTopic, match="no topic 'absent'"):
        planned(LogReader(options_of(broker, subscribe="t,absent"), COLUMNS))
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    with pytest.raises(UnknownTopic, match="no partition t-7"):
        planned(LogReader(SourceOptions.parse({**servers, "assign": '{"t": [0, 7]}'}, is_stream=False), COLUMNS))


def test_offsets_have_to_be_given_for_each_partition(broker):
    with pytest.raises(BadOption, match="does not have t-1"):
        planned(LogReader(options_of(broker, startingoffsets='{"t": {"0": 3}}'), COLUMNS))
    with pytest.raises(BadOption, match="has t-5, which is not read"):
        planned(LogReader(options_of(broker, startingoffsets='{"t": {"0": 3, "1": 3, "5": 1}}'), COLUMNS))


def test_a_plan_says_at_once_what_is_lost(broker):
    with pytest.raises(DataLost, match="cut-0 begins at offset 5, after 3"):
        planned(LogReader(options_of(broker, subscribe="cut", startingoffsets='{"cut": {"0": 3}}'), COLUMNS))
    with pytest.raises(DataLost, match="cut-0 ends at offset 20, before 30"):
        planned(LogReader(options_of(broker, subscribe="cut", endingoffsets='{"cut": {"0": 30}}'), COLUMNS))
    lenient = {"startingoffsets": '{"cut": {"0": 3}}', "endingoffsets": '{"cut": {"0": 30}}', "failondataloss": "false"}
    assert planned(LogReader(options_of(broker, subscribe="cut", **lenient), COLUMNS)) == [OffsetRange("cut", 0, 5, 20)]


def test_tasks_are_as_many_as_wanted(broker):
    assert len(planned(LogReader(options_of(broker, minpartitions="5"), COLUMNS))) == 5
    assert len(planned(LogReader(options_of(broker, maxrecordsperpartition="3"), COLUMNS))) == 8


def test_what_goes_to_tasks_can_be_pickled(broker):
    reader = LogReader(options_of(broker), COLUMNS)
    part, again = reader.partitions()[0], pickle.loads(pickle.dumps(reader))
    assert pickle.loads(pickle.dumps(part)).offset_range == part.offset_range
    assert sum(batch.num_rows for batch in again.read(part)) == 10
