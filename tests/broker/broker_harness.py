"""A broker and short words for what tests say to it.

The handlers' tests speak only the protocol, so they hold for any Kafka. ``HEADRACE_TEST_KAFKA=host:port`` runs them
against a running broker (Apache Kafka 4.3 passes them but where a test is marked ``ours``).
"""

import asyncio
import os
from concurrent.futures import Future
from itertools import count
from time import time_ns
from uuid import uuid4

from headrace.protocol.api import Api, versions_of
from headrace.protocol.batch_building import build_batch
from headrace.protocol.record_body import Record, decode_records
from headrace.protocol.records import iter_headers
from headrace.testing.raw_client import RawClient

OTHER_KAFKA = os.environ.get("HEADRACE_TEST_KAFKA")
#: Records of the past would be expired by a broker whose clock is the real one.
NOW_MS = time_ns() // 1_000_000
TOPIC, BROKER = 2, 4
_numbers = count()
_run = uuid4().hex[:6]


def all_versions(api):
    return list(versions_of(api))


def unique(prefix="topic"):
    return f"{prefix}-{_run}-{next(_numbers)}"


def batch(count=1, *, timestamp_ms=NOW_MS, value=b"v" * 10, key=b"k", **fields):
    return build_batch([Record(number, timestamp_ms, key, value, ()) for number in range(count)], **fields)


def on_loop(broker, function, *arguments):
    """Runs a function on the loop of a broker that has its own thread."""
    done = Future()

    def run():
        try:
            done.set_result(function(*arguments))
        except Exception as error:  # noqa: BLE001  raised where the test waits
            done.set_exception(error)

    broker.core.runtime.loop.call_soon_threadsafe(run)
    return done.result(10)


def await_on_loop(broker, coroutine):
    return asyncio.run_coroutine_threadsafe(coroutine, broker.core.runtime.loop).result(10)


class Client(RawClient):
    """A raw client with a word for each thing that many tests do."""

    def create_topic(self, name=None, partitions=1, **configs):
        """Makes a topic; dots of config names are written as underscores. Returns its name."""
        name = name or unique()
        named = [{"name": key.replace("_", "."), "value": str(value)} for key, value in configs.items()]
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "assignments": (),
            "configs": named,
        }
        (answer,) = self.ask(Api.CREATE_TOPICS, 7, topics=[topic], timeout=10_000, validate_only=False).topics
        assert answer.error_code == 0, answer
        self.settle(name, partitions)
        return name

    def settle(self, name, partitions=1):
        """Apache Kafka's brokers learn of a topic a moment later; ours when the answer comes."""
        while OTHER_KAFKA and any(self.offset(name, -1, partition=index).error_code for index in range(partitions)):
            pass

    def id_of(self, name):
        (topic,) = self.metadata([name]).topics
        return topic.topic_id

    def metadata(self, names, version=12, *, create=False, **fields):
        topics = None if names is None else [{"name": name} for name in names]
        operations = {"include_cluster_authorized_operations": False, "include_topic_authorized_operations": False}
        fields = {"allow_auto_topic_creation": create, **operations, **fields}
        return self.ask(Api.METADATA, version, topics=topics, **fields)

    def produce(self, topic, records=None, *, partition=0, version=9, acks=-1, topic_id=None):
        """One batch to one partition; returns the partition's answer."""
        records = batch() if records is None else records
        data = {"name": topic, "topic_id": topic_id, "partition_data": [{"index": partition, "records": records}]}
        answer = self.ask(Api.PRODUCE, version, acks=acks, timeout=10_000, topic_data=[data])
        return answer.responses[0].partition_responses[0]

    def fetch(self, wanted, version=12, **fields):
        """``wanted`` is ``(topic, partition, offset)`` or a list of them; a topic is a name, or an id from v13 on."""
        return self.ask(Api.FETCH, version, **fetch_request(wanted, **fields))

    def read(self, topic, offset=0, **fields):
        """The first partition's answer to a fetch of one partition."""
        answer = self.fetch((topic, 0, offset), **fields)
        assert answer.error_code == 0
        return answer.responses[0].partitions[0]

    def offset(self, topic, timestamp, *, partition=0, version=7, **fields):
        wanted = {"partition_index": partition, "timestamp": timestamp, **fields}
        topics = [{"name": topic, "partitions": [wanted]}]
        answer = self.ask(Api.LIST_OFFSETS, version, replica_id=-1, isolation_level=0, topics=topics)
        return answer.topics[0].partitions[0]

    def configs(self, kind, name, *keys):
        """The described settings of a resource, by name."""
        resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys or None}
        (result,) = self.ask(Api.DESCRIBE_CONFIGS, 4, resources=[resource], include_synonyms=True).results
        assert result.error_code == 0, result
        return {config.name: config for config in result.configs}

    def alter(self, kind, name, *changes, version=1, validate_only=False):
        """IncrementalAlterConfigs; a change is (name, operation, value)."""
        configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
        resource = {"resource_type": kind, "resource_name": name, "configs": configs}
        fields = {"resources": [resource], "validate_only": validate_only}
        (response,) = self.ask(Api.INCREMENTAL_ALTER_CONFIGS, version, **fields).responses
        return response


def fetch_request(wanted, *, max_wait=0, min_bytes=1, max_bytes=1 << 24, partition_max_bytes=1 << 20, **fields):
    epochs = {name: fields.pop(name) for name in ("current_leader_epoch", "last_fetched_epoch") if name in fields}
    topics = {}
    for topic, partition, offset in [wanted] if isinstance(wanted, tuple) else wanted:
        asked = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": partition_max_bytes, **epochs}
        topics.setdefault(topic, []).append(asked)
    forgotten = fields.pop("forgotten", [])
    return {
        "replica_id": -1,
        "max_wait": max_wait,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": 0,
        "topics": [_named(topic, partitions) for topic, partitions in topics.items()],
        "forgotten_topics_data": [_named(topic, partitions) for topic, partitions in forgotten],
        "rack_id": "",
        **fields,
    }


def _named(topic, partitions):
    return {"topic": topic, "topic_id": topic, "partitions": partitions}


def headers(records):
    return [header for _, header in iter_headers(records or b"")]


def values(records):
    """The values of all records in fetched bytes."""
    found = []
    for position, header in iter_headers(records or b""):
        found += [record.value for record in decode_records(records[position : position + header.size_bytes])]
    return found
