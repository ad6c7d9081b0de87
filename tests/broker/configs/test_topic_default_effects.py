"""Broker settings that are defaults of topics change while the broker runs: what topics without their own setting do.

Each effect is observed on three topics, which all exist before the change. One is observed before the change. The
second is observed after the change, and has to differ. The third has the earlier value as its own setting, so it has to
be as the first.
"""

import os
import random
import struct
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from broker_harness import BROKER, NOW_MS, TOPIC, Client, await_on_loop, batch, headers, on_loop
from crc32c import crc32c
from transaction_harness import TxnProducer

from headrace import Broker
from headrace.broker.configs.keys import to_text
from headrace.broker.configs.registry import BROKER_KEYS, TOPIC_KEYS
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.testing import ManualClock, pass_time

SET, DELETE = 0, 1
CLUSTER_DEFAULT, THIS_BROKER = "", "0"
#: What the broker of these tests was started with, so that time passes in small steps.
STATIC = {"log.retention.check.interval.ms": "1000", "log.segment.delete.delay.ms": "60000"}


class DefaultsHarness:
    """A broker whose clock the test moves, and a client."""

    def __init__(self, folder, broker, client, clock):
        self.folder, self.broker, self.client, self.clock = folder, broker, client, clock

    def change(self, *changes, of=CLUSTER_DEFAULT):
        assert self.client.alter(BROKER, of, *changes).error_code == 0
        await_on_loop(self.broker, self.broker.core.maintenance.settle())

    def produce(self, topic, *, age_ms=0, **fields):
        return self.client.produce(topic, batch(timestamp_ms=self.clock.wall_ms() - age_ms, **fields))

    def produce_many(self, topic, count=12):
        for _ in range(count):
            assert self.produce(topic, value=b"v" * 100).error_code == 0

    def pass_time(self, by_ms):
        pass_time(self.broker, self.clock, by_ms)

    def log(self, topic):
        return self.broker.core.logs.get(topic, 0)

    def on_loop(self, function):
        return on_loop(self.broker, function)

    def segment_count(self, topic):
        return self.on_loop(lambda: len(self.log(topic).segments))


@pytest.fixture
def harness(tmp_path, ours):
    clock = ManualClock(NOW_MS)
    data = tmp_path / "data"
    with Broker(data=data, clock=clock, config=STATIC) as broker, Client(broker.bootstrap_servers) as client:
        yield DefaultsHarness(data, broker, client, clock)


# -- what is observed: functions of the harness and a topic


def has_rolled_by_size(harness, topic):
    harness.produce_many(topic)
    return harness.segment_count(topic) > 1


def has_rolled_by_age(harness, topic):
    harness.produce(topic)
    harness.clock.advance(2_000)
    harness.produce(topic)
    return harness.segment_count(topic) > 1


def index_entries_of_a_new_segment(harness, topic):
    harness.produce(topic)
    harness.on_loop(lambda: harness.log(topic).roll())
    harness.produce_many(topic, 5)
    return harness.on_loop(lambda: len(harness.log(topic).active.loaded().entries))


def is_flushed_before_the_answer(harness, topic):
    harness.produce(topic)
    return harness.log(topic).recovery_point == 1


def is_flushed_after_a_while(harness, topic):
    harness.produce(topic)
    harness.pass_time(60_000)
    harness.pass_time(60_000)
    return harness.log(topic).recovery_point == 1


def is_removed_after_a_while(harness, topic):
    harness.produce_many(topic)
    harness.pass_time(2_000)
    harness.pass_time(1_000)
    return harness.client.offset(topic, -2).offset > 0


def removed_files_stay(harness, topic):
    harness.produce_many(topic)
    harness.pass_time(1_000)
    harness.pass_time(1_000)
    assert harness.client.offset(topic, -2).offset > 0
    return bool(list((harness.folder / f"{topic}-0").glob("*.deleted")))


def code_without_a_key(harness, topic):
    return harness.produce(topic, key=None).error_code


def code_of_an_old_record(harness, topic):
    return harness.produce(topic, age_ms=3_600_000).error_code


def code_of_an_early_record(harness, topic):
    return harness.produce(topic, age_ms=-60_000).error_code


def code_of_a_large_batch(harness, topic):
    return harness.produce(topic, value=b"v" * 500).error_code


def code_of_damaged_records(harness, topic):
    """The batch has a valid checksum, and a record whose length is wrong."""
    data = bytearray(batch(2, timestamp_ms=harness.clock.wall_ms()))
    data[61] += 2
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return harness.client.produce(topic, bytes(data)).error_code


def has_the_brokers_time(harness, topic):
    return harness.produce(topic).log_append_time is not None


def reserved_bytes_of_a_new_segment(harness, topic):
    harness.produce(topic)
    harness.on_loop(lambda: harness.log(topic).roll())
    return os.stat(harness.log(topic).active.path()).st_blocks * 512


def stored_codec(harness, topic):
    harness.produce(topic)
    return headers(harness.client.read(topic).records)[0].attributes & 7


_WORDS = [bytes(random.Random(number).choices(b"abcdefgh", k=7)) for number in range(200)]


def stored_size(harness, topic):
    text = b" ".join(random.Random(1).choices(_WORDS, k=20_000))
    assert harness.produce(topic, value=text).error_code == 0
    return harness.on_loop(lambda: harness.log(topic).size_bytes)


class Effect(NamedTuple):
    setting: str
    value: str
    observe: Callable[[DefaultsHarness, str], Any]
    #: What is observed before and after the change; None if only the difference counts.
    expected: tuple[object, object] | None = (False, True)
    #: Further settings of the topics, which make the effect visible.
    topic: Mapping[str, object] = MappingProxyType({})


SMALL = {"segment_bytes": 1000}
INVALID_TIMESTAMP, INVALID_RECORD = ErrorCode.invalid_timestamp, ErrorCode.invalid_record
EFFECTS = (
    Effect("log.segment.bytes", "1000", has_rolled_by_size),
    Effect("log.roll.ms", "1000", has_rolled_by_age),
    Effect("log.roll.jitter.ms", str(2**60), has_rolled_by_age),
    Effect("log.index.interval.bytes", "0", index_entries_of_a_new_segment, (0, 4)),
    Effect("log.index.size.max.bytes", "24", has_rolled_by_size, topic={"index_interval_bytes": 0}),
    Effect("log.flush.interval.messages", "1", is_flushed_before_the_answer),
    Effect("log.flush.interval.ms", "1000", is_flushed_after_a_while),
    Effect("log.retention.ms", "1000", is_removed_after_a_while),
    Effect("log.retention.bytes", "0", is_removed_after_a_while, topic=SMALL),
    Effect("log.segment.delete.delay.ms", "0", removed_files_stay, (True, False), {**SMALL, "retention_bytes": 0}),
    Effect("log.cleanup.policy", "compact", code_without_a_key, (0, INVALID_RECORD)),
    Effect("log.message.timestamp.before.max.ms", "1000", code_of_an_old_record, (0, INVALID_TIMESTAMP)),
    Effect("log.message.timestamp.after.max.ms", "1000", code_of_an_early_record, (0, INVALID_TIMESTAMP)),
    Effect("log.message.timestamp.type", "LogAppendTime", has_the_brokers_time),
    Effect("log.preallocate", "true", reserved_bytes_of_a_new_segment, (0, 262_144), {"segment_bytes": 262_144}),
    Effect("message.max.bytes", "300", code_of_a_large_batch, (0, ErrorCode.message_too_large)),
    Effect("headrace.walk.records", "true", code_of_damaged_records, (0, INVALID_RECORD)),
    Effect("compression.type", "gzip", stored_codec, (0, 1)),
    Effect("compression.gzip.level", "1", stored_size, None, {"compression_type": "gzip"}),
    Effect("compression.lz4.level", "12", stored_size, None, {"compression_type": "lz4"}),
    Effect("compression.zstd.level", "19", stored_size, None, {"compression_type": "zstd"}),
)


def topic_setting(name):
    """The topic's setting that has this broker setting as its default."""
    (found,) = [key for key in TOPIC_KEYS.values() if any(each.name == name for each in key.synonyms)]
    return found


@pytest.mark.parametrize("effect", EFFECTS, ids=lambda effect: effect.setting)
def test_a_topic_without_its_own_setting_follows_the_default(harness, effect):
    create = harness.client.create_topic
    before_it, after_it = create(**effect.topic), create(**effect.topic)
    own = topic_setting(effect.setting)
    earlier = STATIC.get(effect.setting) or to_text(own.default)
    with_own = create(**effect.topic, **{own.name.replace(".", "_"): earlier})
    before = effect.observe(harness, before_it)
    harness.change((effect.setting, SET, effect.value))
    after = effect.observe(harness, after_it)
    assert after != before
    if effect.expected is not None:
        assert (before, after) == effect.expected
    assert effect.observe(harness, with_own) == before


def test_every_default_of_topics_has_its_effect_here_or_elsewhere():
    """Compaction: tests/broker/maintenance/test_compactions.py. Replicas: tests/broker/replicas/test_replicas.py.
    Unclean leaders: the controller's tests."""
    elsewhere = {"min.insync.replicas", "unclean.leader.election.enable"}
    dynamic = {
        synonym.name
        for key in TOPIC_KEYS.values()
        for synonym in key.synonyms
        if BROKER_KEYS[synonym.name].update.value != "read-only" and not synonym.name.startswith("log.cleaner.")
    }
    assert dynamic - elsewhere == {effect.setting for effect in EFFECTS}


def test_the_order_of_the_layers(harness):
    """A topic's own setting, then this broker's, then that of all brokers, then the file, then the default."""

    def limit():
        """The largest of these sizes that is accepted."""
        sizes = (400, 800, 1_600, 3_200, 6_400)
        return max(size for size in sizes if harness.produce(topic, value=b"v" * size).error_code == 0)

    name, topic = "message.max.bytes", harness.client.create_topic()
    assert limit() == 6_400
    harness.change((name, SET, "4000"))
    assert limit() == 3_200
    harness.change((name, SET, "2000"), of=THIS_BROKER)
    assert limit() == 1_600
    assert harness.client.alter(TOPIC, topic, ("max.message.bytes", SET, "1000")).error_code == 0
    assert limit() == 800
    entry = harness.client.configs(TOPIC, topic, "max.message.bytes")["max.message.bytes"]
    assert [(each.name, each.value, each.source) for each in entry.synonyms] == [
        ("max.message.bytes", "1000", 1), (name, "2000", 2), (name, "4000", 3), (name, "1048588", 5),
    ]  # fmt: skip
    assert harness.client.alter(TOPIC, topic, ("max.message.bytes", DELETE, None)).error_code == 0
    assert limit() == 1_600
    harness.change((name, DELETE, None), of=THIS_BROKER)
    assert limit() == 3_200
    harness.change((name, DELETE, None))
    assert limit() == 6_400


def test_a_dynamic_setting_in_milliseconds_beats_the_files_hours(tmp_path, ours):
    clock = ManualClock(NOW_MS)
    config = {**STATIC, "log.retention.hours": "1"}
    data = tmp_path / "data"
    with Broker(data=data, clock=clock, config=config) as broker, Client(broker.bootstrap_servers) as client:
        harness = DefaultsHarness(data, broker, client, clock)
        kept, removed = client.create_topic(), client.create_topic()
        assert not is_removed_after_a_while(harness, kept)
        harness.change(("log.retention.ms", SET, "1000"))
        assert is_removed_after_a_while(harness, removed)


def test_idle_producers_are_forgotten_after_the_new_time(harness):
    def is_known_after_a_while(topic):
        harness.produce(topic, base_sequence=0, producer_id=5, producer_epoch=0)
        harness.pass_time(600_000)
        answer = harness.client.ask(Api.DESCRIBE_PRODUCERS, 0, topics=[{"name": topic, "partition_indexes": [0]}])
        return [each.producer_id for each in answer.topics[0].partitions[0].active_producers] == [5]

    first, second = harness.client.create_topic(), harness.client.create_topic()
    assert is_known_after_a_while(first)
    harness.change(("producer.id.expiration.ms", SET, "5000"))
    assert not is_known_after_a_while(second)


def test_the_verification_of_transactions_is_switched_off_and_on(harness):
    def code_of_a_write_without_its_partition():
        producer = TxnProducer(harness.client)
        producer.start()
        return producer.write(harness.client.create_topic()).error_code

    name = "transaction.partition.verification.enable"
    assert code_of_a_write_without_its_partition() == ErrorCode.invalid_txn_state
    harness.change((name, SET, "false"))
    assert code_of_a_write_without_its_partition() == 0
    harness.change((name, DELETE, None))
    assert code_of_a_write_without_its_partition() == ErrorCode.invalid_txn_state
