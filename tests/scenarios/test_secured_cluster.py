"""Three brokers that trust nobody: all connections are SASL_SSL, also those between brokers."""

from cluster_scenario_harness import as_options, until

from certificates import certificate
from headrace import Admin, Consumer, Producer
from headrace.client.admin_types import NewTopic
from headrace.testing.cluster_process import ClusterProcess

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SETTINGS = {
    "security.inter.broker.protocol": "SASL_SSL",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.sasl_ssl.plain.sasl.jaas.config": (
        f'{PLAIN} username="broker" password="b" user_broker="b" user_alice="a";'
    ),
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "connections.max.reauth.ms": "5000",
}
CLIENT = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "a"}


def test_a_cluster_starts_replicates_and_survives_a_death(tmp_path):
    made = certificate()
    options = as_options({**SETTINGS, **made.write(tmp_path)})
    with ClusterProcess(tmp_path / "data", *options, protocol="SASL_SSL", session_timeout_ms=3_000) as cluster:
        client = {"bootstrap.servers": cluster.bootstrap_servers, **CLIENT, **made.trust_store()}
        with Admin(config=client) as admin:
            admin.create_topics([NewTopic("t", 3, 3)])
            cluster.kill(1)
            with Producer(config=client) as producer:
                for number in range(300):
                    producer.send("t", str(number).encode())
            until(lambda: 1 not in {node.id for node in admin.describe_cluster().brokers}, "broker 1 is gone")
            cluster.restart(1)
            assert cluster.stop(2) == 0
            options = {"group.id": "g", "auto.offset.reset": "earliest"}
            with Consumer(config={**client, **options}) as consumer:
                consumer.subscribe(["t"])
                found = set()
                until(lambda: _more(consumer, found) == 300, "all records")
                consumer.commit()
        assert found == {str(number).encode() for number in range(300)}
        assert "authentication" not in cluster.log(3).lower()


def _more(consumer, found):
    found.update(record.value for record in consumer.poll(500))
    return len(found)
