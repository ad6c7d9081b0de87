"""Metrics as a scraper sees them: a live broker, a real client, Prometheus' own parser."""

import socket
import urllib.request
from contextlib import contextmanager

import pytest
from broker_harness import Client, batch, on_loop
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from headrace import Broker, __version__
from headrace.broker.broker import StartError
from headrace.broker.metrics.counters import StatsByTopic, split_times_ms
from headrace.broker.metrics.families import FAMILIES
from headrace.broker.metrics.family import Kind

ANYWHERE = {"headrace.metrics.listener": "127.0.0.1:0"}
TOPIC_METRIC = "kafka_server_brokertopicmetrics_{}_total"
TIME_METRIC = "kafka_network_requestmetrics_{}"
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@pytest.fixture
def broker():
    with Broker(config=ANYWHERE) as made:
        yield made


def get(broker, accept="text/plain"):
    host, port = broker.core.metrics_exporter.endpoint
    asked = urllib.request.Request(f"http://{host}:{port}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(asked, timeout=10) as answer:
        return answer.read().decode()


class Scraped:
    def __init__(self, broker):
        self.families = {family.name: family for family in text_string_to_metric_families(get(broker))}
        self.samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def __call__(self, name, **labels):
        return self.samples[name, frozenset(labels.items())]

    def has(self, name, **labels):
        return (name, frozenset(labels.items())) in self.samples


def produce(broker, topic, count):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
    for number in range(count):
        producer.produce(topic, str(number).encode())
    assert producer.flush(10) == 0


@contextmanager
def consumed(broker, topic, count):
    """A consumer that has read ``count`` records, and is still open."""
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        seen = 0
        while seen < count:
            seen += len(consumer.consume(count - seen, 10))
        yield consumer
    finally:
        consumer.close()


def test_what_a_real_client_did_is_counted(broker):
    produce(broker, "clicks", 500)
    with consumed(broker, "clicks", 500):
        scraped = Scraped(broker)
    log_bytes = scraped("kafka_log_log_size", topic="clicks", partition="0")
    for labels in ({}, {"topic": "clicks"}):
        assert scraped(TOPIC_METRIC.format("messagesin"), **labels) == 500
        assert scraped(TOPIC_METRIC.format("bytesin"), **labels) == log_bytes
        assert scraped(TOPIC_METRIC.format("bytesout"), **labels) == log_bytes
        assert scraped(TOPIC_METRIC.format("totalproducerequests"), **labels) >= 1
        assert scraped(TOPIC_METRIC.format("totalfetchrequests"), **labels) >= 1
        assert scraped(TOPIC_METRIC.format("failedproducerequests"), **labels) == 0
        assert scraped(TOPIC_METRIC.format("failedfetchrequests"), **labels) == 0
    assert scraped("kafka_log_log_logstartoffset", topic="clicks", partition="0") == 0
    assert scraped("kafka_log_log_logendoffset", topic="clicks", partition="0") == 500
    assert scraped("kafka_log_log_numlogsegments", topic="clicks", partition="0") == 1
    software = [key for key in scraped.samples if key[0] == "kafka_server_socketservermetrics_connections"]
    assert any(dict(labels)["client_software_name"] == "confluent-kafka-python" for _, labels in software)
    assert scraped("kafka_server_socketservermetrics_connection_count", listener="PLAINTEXT") >= 1


def test_the_broker_describes_itself(broker):
    with Client(broker.bootstrap_servers) as client:
        client.create_topic("wide", partitions=3)
        scraped = Scraped(broker)
    assert scraped("kafka_server_kafkaserver_brokerstate") == 3
    assert scraped("kafka_server_app_info", broker_id="0", version=__version__) == 1
    assert scraped("kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert scraped("kafka_controller_kafkacontroller_globaltopiccount") == 1
    assert scraped("kafka_controller_kafkacontroller_globalpartitioncount") == 3
    assert scraped("kafka_controller_kafkacontroller_offlinepartitionscount") == 0
    assert scraped("kafka_server_replicamanager_partitioncount") == 3
    assert scraped("kafka_server_replicamanager_leadercount") == 3
    assert scraped("kafka_server_replicamanager_underreplicatedpartitions") == 0
    assert scraped("kafka_server_replicamanager_offlinereplicacount") == 0
    assert scraped("kafka_cluster_partition_insyncreplicascount", topic="wide", partition="2") == 1
    assert scraped("kafka_cluster_partition_underreplicated", topic="wide", partition="2") == 0
    assert scraped("kafka_cluster_partition_underminisr", topic="wide", partition="2") == 0
    assert scraped("kafka_log_logmanager_offlinelogdirectorycount") == 0
    assert scraped("process_resident_memory_bytes") > 1_000_000


def test_requests_are_counted_by_version_and_timed_by_stage(broker):
    with Client(broker.bootstrap_servers) as client:
        topic = client.create_topic()
        for _ in range(20):
            client.produce(topic)
        client.read(topic, version=12)
        scraped = Scraped(broker)
    assert scraped(TIME_METRIC.format("requests_total"), request="Produce", version="9") == 20
    assert scraped(TIME_METRIC.format("requests_total"), request="Fetch", version="12") == 1
    assert scraped(TIME_METRIC.format("requests_total"), request="FetchConsumer", version="12") == 1
    stages = ("requestqueuetimems", "localtimems", "remotetimems", "responsequeuetimems", "responsesendtimems")
    total = TIME_METRIC.format("totaltimems")
    assert scraped(f"{total}_count", request="Produce") == 20
    quantiles = [
        scraped(total, request="Produce", quantile=name) for name in ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
    ]
    assert quantiles == sorted(quantiles)
    assert 0 < quantiles[0] <= quantiles[-1] < 10_000
    for stage in stages:
        assert 0 <= scraped(TIME_METRIC.format(stage), request="Produce", quantile="0.999") <= quantiles[-1]


def test_a_fetch_that_waits_is_in_the_purgatory_and_in_a_session(broker):
    produce(broker, "slow", 1)
    with consumed(broker, "slow", 1), Client(broker.bootstrap_servers) as client:
        session = client.fetch(("slow", 0, 1), max_wait=0, session_epoch=0)
        scraped = Scraped(broker)
        while not scraped("kafka_server_delayedoperationpurgatory_numdelayedoperations", delayedOperation="Fetch"):
            scraped = Scraped(broker)  # the consumer is between two fetches
    assert session.session_id != 0
    assert scraped("kafka_server_delayedoperationpurgatory_purgatorysize", delayedOperation="Fetch") == 1
    assert scraped("kafka_server_fetchsessioncache_numincrementalfetchsessions") >= 1
    assert scraped("kafka_server_fetchsessioncache_numincrementalfetchpartitionscached") >= 1


def test_failures_are_counted(broker):
    with Client(broker.bootstrap_servers) as client:
        topic = client.create_topic()
        damaged = bytearray(batch())
        damaged[-1] ^= 1
        assert client.produce(topic, bytes(damaged)).error_code
        assert client.read(topic, offset=99).error_code
        scraped = Scraped(broker)
    assert scraped(TOPIC_METRIC.format("failedproducerequests"), topic=topic) == 1
    assert scraped(TOPIC_METRIC.format("failedfetchrequests"), topic=topic) == 1
    assert scraped(TOPIC_METRIC.format("messagesin"), topic=topic) == 0


def test_names_that_are_no_topics_take_no_memory_but_count(broker):
    with Client(broker.bootstrap_servers) as client:
        for number in range(10):
            assert client.produce(f"missing-{number}").error_code
        scraped = Scraped(broker)
    assert scraped(TOPIC_METRIC.format("failedproducerequests")) == 10
    assert not on_loop(broker, dict, broker.core.metrics.by_topic)


def test_a_deleted_topic_leaves_the_sum_as_it_was(broker):
    produce(broker, "kept", 3)
    produce(broker, "gone", 4)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics(["gone"])["gone"].result(10)
    scraped = Scraped(broker)
    assert scraped(TOPIC_METRIC.format("messagesin")) == 7
    assert scraped(TOPIC_METRIC.format("messagesin"), topic="kept") == 3
    assert not scraped.has(TOPIC_METRIC.format("messagesin"), topic="gone")
    assert not scraped.has("kafka_log_log_size", topic="gone", partition="0")


def test_every_family_is_served_and_nothing_else_of_kafka(broker):
    produce(broker, "any", 1)
    families = Scraped(broker).families
    # The parser drops a counter's suffix, as OpenMetrics does.
    served = {name for name in families if name.startswith("kafka_")}
    assert served == {family.name.removesuffix("_total") for family in FAMILIES}
    for family in FAMILIES:
        kind = "unknown" if family.kind is Kind.UNTYPED else family.kind.value
        assert families[family.name.removesuffix("_total")].type == kind
        assert families[family.name.removesuffix("_total")].documentation == family.meaning


def test_labels_are_those_of_the_table(broker):
    produce(broker, "any", 1)
    with consumed(broker, "any", 1):
        scraped = Scraped(broker)
    labels = {family.name: set(family.labels) for family in FAMILIES}
    for name, found in scraped.samples:
        if name.startswith("kafka_"):
            # All topics together have no topic.
            assert {key for key, _ in found} in (labels[name], labels[name] - {"topic"})


def test_openmetrics_is_spoken_too(broker):
    text = get(broker, OPENMETRICS)
    assert text.endswith("# EOF\n")
    names = {family.name for family in openmetrics_families(text)}
    assert "kafka_server_brokertopicmetrics_messagesin" in names


def test_compaction_shows_how_dirty_logs_are():
    compacted = {"cleanup_policy": "compact", "segment_bytes": 1000, "min_cleanable_dirty_ratio": 1}
    with (
        Broker(config={**ANYWHERE, "log.cleaner.backoff.ms": 10}) as broker,
        Client(broker.bootstrap_servers) as client,
    ):
        topic = client.create_topic(**compacted)
        for _ in range(3):
            client.produce(topic, batch(value=b"v" * 800))
        dirty = 0
        while not dirty:
            scraped = Scraped(broker)
            dirty = scraped("kafka_log_logcleanermanager_max_dirty_percent")
        assert dirty == 100
        assert 0 <= scraped("kafka_log_logcleanermanager_time_since_last_run_ms") < 60_000
        (folder,) = [log_dir.path for log_dir in broker.core.logs.log_dirs]
        assert scraped("kafka_log_logcleanermanager_uncleanable_partitions_count", logDirectory=folder) == 0


def test_names_are_unique_and_documented():
    names = [family.name for family in FAMILIES]
    assert len(names) == len(set(names))
    for family in FAMILIES:
        assert family.meaning.endswith(".")
        assert family.name == family.name.lower()
        assert family.name.endswith("_total") == (family.kind is Kind.COUNTER)


def test_without_the_setting_nothing_is_served():
    with Broker() as broker:
        assert broker.core.metrics_exporter is None


def test_a_taken_metrics_port_is_one_line():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(StartError, match=f"^cannot serve metrics on {address}: Address already in use$"):
            Broker(config={"headrace.metrics.listener": address}).start()


def test_a_stopped_broker_serves_no_metrics():
    with Broker(config=ANYWHERE) as broker:
        host, port = broker.core.metrics_exporter.endpoint
        get(broker)
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind((host, port))
        assert free.getsockname()[1] == port


def test_counts_of_a_topic_that_is_gone_move_to_the_others():
    topics = {"a"}
    by_topic = StatsByTopic(topics.__contains__)
    by_topic["a"].bytes_in += 5
    by_topic["b"].bytes_in += 2
    topics.clear()
    by_topic.forget("a")
    by_topic.forget("a")
    by_topic["a"].bytes_in += 1
    shown, others = by_topic.snapshot()
    assert (shown, others.bytes_in) == ([], 8)


def test_a_requests_time_is_split_without_rest():
    received, started, parked, answered, sending, sent = (number * 1_000_000 for number in (1, 3, 6, 10, 15, 21))
    split = split_times_ms((received, started, parked, answered, sending, sent))
    assert split == {
        "totaltimems": 20,
        "requestqueuetimems": 2,
        "localtimems": 3,
        "remotetimems": 4,
        "responsequeuetimems": 5,
        "responsesendtimems": 6,
    }
    at_once = split_times_ms((received, started, 0, answered, 0, sent))
    assert (at_once["localtimems"], at_once["remotetimems"], at_once["responsesendtimems"]) == (7, 0, 0)
