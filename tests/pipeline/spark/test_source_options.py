"""Options of the source: what they mean, and what is refused."""

from __future__ import annotations

import subprocess
import sys

import pytest

from headrace.client.types import TopicPartition
from headrace.pipeline.progress.ranges import OffsetRange
from headrace.pipeline.spark.options import BadOption
from headrace.pipeline.spark.source.options import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    AtOffsets,
    AtTimes,
    Everywhere,
    SourceOptions,
    options_for,
)

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def parse(is_stream: bool = False, **options: str) -> SourceOptions:
    given = {**SERVERS, "subscribe": "clicks"} | options
    return SourceOptions.parse({name.lower(): text for name, text in given.items()}, is_stream=is_stream)


def test_a_batch_reads_all_and_a_stream_what_comes():
    assert (parse().start, parse().end) == (Everywhere(EARLIEST_OFFSET), Everywhere(LATEST_OFFSET))
    assert parse(is_stream=True).start == Everywhere(LATEST_OFFSET)


def test_topics_are_a_list_with_commas():
    assert parse(subscribe=" b, a,,b").topics == ("a", "b")


def test_partitions_are_assigned_by_json():
    options = SourceOptions.parse({**SERVERS, "assign": '{"t": [1, 0], "u": [3]}'}, is_stream=False)
    assert options.partitions == (TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 3))


def test_options_for_ranges_name_exactly_these():
    written = options_for([OffsetRange("a", 1, 0, 3), OffsetRange("a", 0, 5, 8)])
    assert written == {
        "assign": '{"a": [0, 1]}',
        "startingOffsets": '{"a": {"0": 5, "1": 0}}',
        "endingOffsets": '{"a": {"0": 8, "1": 3}}',
    }
    options = SourceOptions.parse({**SERVERS, **written}, is_stream=False)
    assert options.partitions == (TopicPartition("a", 0), TopicPartition("a", 1))
    assert options.start == AtOffsets({TopicPartition("a", 0): 5, TopicPartition("a", 1): 0})
    assert options.end == AtOffsets({TopicPartition("a", 0): 8, TopicPartition("a", 1): 3})


def test_offsets_by_partition():
    start = parse(startingOffsets='{"clicks": {"0": 23, "1": -2}}').start
    assert start == AtOffsets({TopicPartition("clicks", 0): 23, TopicPartition("clicks", 1): EARLIEST_OFFSET})
    assert parse(endingOffsets='{"clicks": {"0": -1}}').end == AtOffsets({TopicPartition("clicks", 0): LATEST_OFFSET})
    assert parse(startingOffsets=" EARLIEST ").start == Everywhere(EARLIEST_OFFSET)


def test_a_time_comes_before_times_and_these_before_offsets():
    by_partition = '{"clicks": {"0": 1700000000000}}'
    given = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": by_partition}
    assert parse(**given).start == AtTimes(times_ms={TopicPartition("clicks", 0): 1_700_000_000_000})
    assert parse(**given, startingTimestamp="5").start == AtTimes(5)
    assert parse(endingTimestamp="7").end == AtTimes(7)
    assert parse(startingOffsetsByTimestampStrategy="latest").is_latest_without_match


def test_numbers_flags_and_durations():
    options = parse(
        is_stream=True, maxOffsetsPerTrigger="100", minOffsetsPerTrigger="10", maxTriggerDelay="30s", minPartitions="4",
        maxRecordsPerPartition="7", failOnDataLoss="False", includeHeaders="true", commitGroup="g",
    )  # fmt: skip
    assert (options.max_offsets_per_trigger, options.min_offsets_per_trigger) == (100, 10)
    assert (options.min_partitions, options.max_records_per_partition) == (4, 7)
    assert (options.fail_on_data_loss, options.include_headers, options.commit_group) == (False, True, "g")
    assert options.max_trigger_delay_ms == 30_000
    assert parse(is_stream=True).max_trigger_delay_ms == 900_000


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [("15m", 900_000), ("500ms", 500), ("250", 250), ("2 hours", 7_200_000), ("1 minute", 60_000), ("1d", 86_400_000)],
)
def test_durations(text, expected_ms):
    assert parse(is_stream=True, maxTriggerDelay=text).max_trigger_delay_ms == expected_ms


def test_kafka_options_go_to_the_client():
    client = parse(**{"kafka.isolation.level": "read_committed", "kafka.group.id": "g"}).client
    assert client["isolation.level"] == "read_committed"
    assert client["group.id"] == "g"
    assert parse(groupIdPrefix="mine").client["group.id"].startswith("mine-")
    assert "group.id" not in parse().client


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"minPartition": "3"}, "no option minpartition; did you mean minPartitions"),
        ({"zzz": "3"}, "no option zzz; the options are subscribe"),
        ({"subscribePattern": "c.*"}, "one of subscribe, subscribePattern and assign"),
        ({"startingOffsets": "latest"}, "would be empty"),
        ({"startingOffsets": '{"clicks": {"0": -1}}'}, "would be empty"),
        ({"endingOffsets": "earliest"}, "empty"),
        ({"startingOffsets": "newest"}, "startingOffsets takes earliest, latest"),
        ({"startingOffsets": '{"clicks": {"0": -3}}'}, "is invalid"),
        ({"startingOffsets": '{"clicks": {"a": 3}}'}, "is invalid"),
        ({"startingOffsets": '{"clicks": 3}'}, "startingOffsets takes"),
        ({"startingOffsets": "[1]"}, "startingOffsets takes"),
        ({"startingOffsetsByTimestamp": "now"}, "not JSON"),
        ({"startingTimestamp": "-5"}, "at least 0"),
        ({"minPartitions": "0"}, "at least 1"),
        ({"minPartitions": "two"}, "whole number"),
        ({"failOnDataLoss": "perhaps"}, "one of true, false"),
        ({"subscribe": " "}, "subscribe is empty"),
        ({"commitGroup": "g"}, "commitGroup is for streams"),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers is missing"),
        ({"kafka.auto.offset.reset": "earliest"}, "use startingOffsets"),
        ({"kafka.enable.auto.commit": "true"}, "use commitGroup"),
        ({"kafka.fetch.min.byte": "1"}, "did you mean fetch.min.bytes"),
        ({"kafka.isolation.level": "some"}, "read_committed"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(BadOption, match=message):
        parse(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endingOffsets": "latest"}, "a stream has no end"),
        ({"endingTimestamp": "5"}, "a stream has no end"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "is more than"),
        ({"maxTriggerDelay": "soon"}, "a time such as"),
    ],
)
def test_what_cannot_be_of_a_stream_is_refused(options, message):
    with pytest.raises(BadOption, match=message):
        parse(is_stream=True, **options)


@pytest.mark.parametrize("text", ["t", "[]", '{"t": 1}', '{"t": ["a"]}', "{}"])
def test_assign_wants_partitions(text):
    with pytest.raises(BadOption, match="assign takes JSON"):
        SourceOptions.parse({**SERVERS, "assign": text}, is_stream=False)


def test_a_pattern_has_to_be_one():
    with pytest.raises(BadOption, match="not a regular expression"):
        SourceOptions.parse({**SERVERS, "subscribepattern": "("}, is_stream=False)


def test_topics_have_to_be_said():
    with pytest.raises(BadOption, match="set exactly one of subscribe, subscribePattern and assign"):
        SourceOptions.parse(SERVERS, is_stream=False)


def test_the_package_does_not_bring_spark():
    code = "import sys, headrace.pipeline; assert not {'pyspark', 'pyarrow'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
