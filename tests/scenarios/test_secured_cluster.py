"""Three brokers that trust nobody: all connections are SASL_SSL, also those between brokers."""

from cluster_scenario_harness import as_options, until

from certificates import certificate
from headrace import Admin, Consumer, Producer
from headrace.client.admin.types import ConfigChange, ConfigResource, NewTopic
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


def test_another_authority_without_a_restart(tmp_path):
    """First all brokers trust both authorities, then they get certificates of the new one. The connections between
    brokers use the new stores when AlterConfigs has sent their locations again, not when the files change."""
    old, new = certificate(), certificate(issuer="two")
    settings = {
        "security.inter.broker.protocol": "SSL",
        "ssl.client.auth": "required",
        "ssl.allow.dn.changes": "true",
        "default.replication.factor": "2",
        "min.insync.replicas": "2",
        **old.write(tmp_path),
    }
    reloaded = "the client of other brokers uses new key and trust stores"
    with ClusterProcess(tmp_path / "data", *as_options(settings), protocol="SSL", brokers=2) as cluster:
        (tmp_path / "both.pem").write_text(old.issuer + new.issuer)
        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(tmp_path / "both.pem")}
        client = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "security.protocol": "SSL",
            **trust,
            **old.key_store(),
        }
        with Admin(config=client) as admin:
            admin.create_topics([NewTopic("t", 2, 2)])
            for count, (file, content) in enumerate(
                (("server-issuer.pem", old.issuer + new.issuer), ("server.pem", new.key + new.chain)), start=1
            ):
                setting = "truststore" if count == 1 else "keystore"
                (tmp_path / "new").write_text(content)
                (tmp_path / "new").replace(tmp_path / file)
                for number in (1, 2):
                    assert cluster.log(number).count(reloaded) == count - 1
                    resource = ConfigResource("broker", str(number))
                    change = ConfigChange(f"listener.name.ssl.ssl.{setting}.location", str(tmp_path / file))
                    admin.alter_configs({resource: [change]}).value(resource)
                    assert cluster.log(number).count(reloaded) == count
        cluster.kill(2)
        cluster.restart(2)  # broker 1 connects to a certificate of the new authority, and shows its own
        with Producer(config=client | {"acks": "all"}) as producer:
            for partition in (0, 1):
                producer.send("t", b"x", partition=partition).result(60)


def _more(consumer, found):
    found.update(record.value for record in consumer.poll(500))
    return len(found)
