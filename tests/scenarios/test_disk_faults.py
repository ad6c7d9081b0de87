"""One of two log dirs fails: its partitions are offline, and everything else works on."""

import errno
from contextlib import contextmanager
from time import monotonic

import pytest

from headrace import Broker
from headrace.protocol.api import Api
from headrace.protocol.batch_building import build_batch
from headrace.protocol.errors import ErrorCode
from headrace.protocol.record_body import Record, decode_records
from headrace.testing.faulty_disk import FaultyDisk
from headrace.testing.raw_client import RawClient

PARTITIONS = 4


class DiskFaultHarness:
    """A broker with the log dirs ``good`` and ``bad``, and topic ``t`` over both."""

    def __init__(self, broker, client, disk, tmp_path):
        self.broker, self.client, self.disk, self.tmp_path = broker, client, disk, tmp_path

    def create(self, name="t", partitions=PARTITIONS):
        topic = {
            "name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": (), "configs": (),
        }  # fmt: skip
        return self.client.ask(Api.CREATE_TOPICS, 7, topics=[topic], timeout=5000, validate_only=False).topics[0]

    def in_folder(self, name, topic="t"):
        folders = (self.tmp_path / name).glob(f"{topic}-?")
        return sorted(int(folder.name.rpartition("-")[2]) for folder in folders)

    def produce(self, partition, value=b"v", topic="t"):
        records = build_batch([Record(0, 1_700_000_000_000, b"k", value, ())])
        data = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
        answer = self.client.ask(Api.PRODUCE, 9, transactional_id=None, acks=-1, timeout=5000, topic_data=data)
        return answer.responses[0].partition_responses[0]

    def fetch(self, partition, topic="t"):
        wanted = {"partition": partition, "fetch_offset": 0, "partition_max_bytes": 1_000_000}
        answer = self.client.ask(
            Api.FETCH, 4, replica_id=-1, max_wait=0, min_bytes=0, max_bytes=1_000_000, isolation_level=0,
            topics=[{"topic": topic, "partitions": [wanted]}],
        )  # fmt: skip
        return answer.responses[0].partitions[0]

    def list_offset(self, partition):
        topics = [{"name": "t", "partitions": [{"partition_index": partition, "timestamp": -1}]}]
        answer = self.client.ask(Api.LIST_OFFSETS, 7, replica_id=-1, isolation_level=0, topics=topics)
        return answer.topics[0].partitions[0]

    def metadata(self, topic="t"):
        answer = self.client.ask(
            Api.METADATA, 12, topics=[{"name": topic}], allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )  # fmt: skip
        return {each.partition_index: each for each in answer.topics[0].partitions}

    def log_dirs(self):
        results = self.client.ask(Api.DESCRIBE_LOG_DIRS, 4, topics=None).results
        return {each.log_dir.rpartition("/")[2]: each for each in results}

    def shows_offline(self, partitions):
        deadline = monotonic() + 10
        while monotonic() < deadline:
            shown = self.metadata()
            if [index for index in sorted(shown) if shown[index].offline_replicas] == partitions:
                return True
        return False


@contextmanager
def harness(tmp_path, disk, *, first_start=True):
    config = {"log.dirs": f"{tmp_path}/good,{tmp_path}/bad"}
    with Broker(config=config, disk=disk) as broker, RawClient(broker.bootstrap_servers) as client:
        harness = DiskFaultHarness(broker, client, disk, tmp_path)
        if first_start:
            assert harness.create().error_code == 0
        yield harness


@pytest.mark.parametrize(
    ("error_number", "partial_bytes"), [(errno.EIO, 0), (errno.ENOSPC, 0), (errno.ENOSPC, 20)], ids=str
)
def test_a_dir_that_cannot_be_written_goes_offline_and_the_other_goes_on(tmp_path, caplog, error_number, partial_bytes):
    with harness(tmp_path, FaultyDisk()) as now:
        good, bad = now.in_folder("good"), now.in_folder("bad")
        assert len(good) == len(bad) == PARTITIONS // 2
        for partition in range(PARTITIONS):
            assert now.produce(partition).error_code == 0
        now.disk.fail("write", "/bad/", error_number=error_number, partial_bytes=partial_bytes)
        assert now.produce(bad[0]).error_code == ErrorCode.kafka_storage_error
        assert now.shows_offline(bad)
        for partition in bad:
            assert now.produce(partition).error_code == ErrorCode.kafka_storage_error
            assert now.fetch(partition).error_code == ErrorCode.kafka_storage_error
            assert now.list_offset(partition).error_code == ErrorCode.kafka_storage_error
        for partition in good:
            assert now.produce(partition).base_offset == 1
            assert len(now.fetch(partition).records) > 0
        shown = now.metadata()
        assert {index: shown[index].leader_id for index in shown} == {
            **dict.fromkeys(good, 0),
            **dict.fromkeys(bad, -1),
        }
        assert {shown[index].error_code for index in bad} == {ErrorCode.leader_not_available}
        dirs = now.log_dirs()
        assert dirs["bad"].error_code == ErrorCode.kafka_storage_error
        assert dirs["good"].error_code == 0
        assert sorted(each.partition_index for each in dirs["good"].topics[0].partitions) == good
        assert len([line for line in caplog.messages if line.startswith(f"log dir {tmp_path}/bad is offline")]) == 1
        assert now.create("later", partitions=2).error_code == 0
        assert now.in_folder("good", "later") == [0, 1]
        assert now.produce(1, topic="later").error_code == 0


def test_after_a_restart_with_a_healed_disk_all_that_was_acknowledged_is_there(tmp_path):
    with harness(tmp_path, FaultyDisk()) as now:
        bad = now.in_folder("bad")
        assert now.produce(bad[0], b"first").base_offset == 0
        now.disk.fail("write", "/bad/", error_number=errno.ENOSPC, partial_bytes=30)
        assert now.produce(bad[0], b"refused").error_code == ErrorCode.kafka_storage_error
    assert (tmp_path / "good" / ".kafka_cleanshutdown").exists()
    assert not (tmp_path / "bad" / ".kafka_cleanshutdown").exists(), "it was not stopped cleanly"
    with harness(tmp_path, FaultyDisk(), first_start=False) as now:
        assert [record.value for record in decode_records(now.fetch(bad[0]).records)] == [b"first"]
        assert now.produce(bad[0], b"second").base_offset == 1
        assert now.shows_offline([])


def test_a_dir_that_is_broken_at_the_start_is_offline_and_its_logs_are_not_started_anew_elsewhere(tmp_path):
    with harness(tmp_path, FaultyDisk()) as now:
        good, bad = now.in_folder("good"), now.in_folder("bad")
        for partition in range(PARTITIONS):
            now.produce(partition, b"before")
    disk = FaultyDisk()
    disk.fail("list", "/bad")
    with harness(tmp_path, disk, first_start=False) as now:
        assert now.shows_offline(bad)
        assert now.in_folder("good") == good, "nothing was made in the other dir"
        for partition in bad:
            assert now.produce(partition).error_code == ErrorCode.kafka_storage_error
            assert now.fetch(partition).error_code == ErrorCode.kafka_storage_error
        for partition in good:
            assert now.produce(partition).base_offset == 1
        assert now.log_dirs()["bad"].error_code == ErrorCode.kafka_storage_error
        assert now.create("later").error_code == 0
        assert now.in_folder("good", "later") == list(range(PARTITIONS))
    with harness(tmp_path, FaultyDisk(), first_start=False) as now:
        for partition in bad:
            assert [record.value for record in decode_records(now.fetch(partition).records)] == [b"before"]


def test_a_failing_read_takes_the_dir_offline_too(tmp_path):
    with harness(tmp_path, FaultyDisk()) as now:
        bad = now.in_folder("bad")
        now.produce(bad[0])
        now.disk.fail("fsync", "/bad/")
        # Deleting records makes the start durable, which needs the disk.
        topics = [{"name": "t", "partitions": [{"partition_index": bad[0], "offset": 1}]}]
        now.client.ask(Api.DELETE_RECORDS, 2, topics=topics, timeout=5000)
        now.disk.fail("write", "/bad/")
        assert now.produce(bad[1]).error_code == ErrorCode.kafka_storage_error
        assert now.shows_offline(bad)


def test_a_topic_whose_folder_cannot_be_made_goes_to_the_other_dir(tmp_path):
    with harness(tmp_path, FaultyDisk()) as now:
        now.disk.fail("mkdir", "/bad/later")
        assert now.create("later").error_code == 0
        assert now.in_folder("good", "later") == list(range(PARTITIONS))
        assert now.produce(3, topic="later").error_code == 0


def test_with_every_dir_offline_the_broker_still_answers(tmp_path):
    with harness(tmp_path, FaultyDisk()) as now:
        now.disk.fail("write", "/t-")
        for partition in range(PARTITIONS):
            assert now.produce(partition).error_code == ErrorCode.kafka_storage_error
        assert now.shows_offline(list(range(PARTITIONS)))
        assert {each.error_code for each in now.log_dirs().values()} == {ErrorCode.kafka_storage_error}
        answer = now.create("later")
        assert answer.error_code in (0, ErrorCode.kafka_storage_error)
