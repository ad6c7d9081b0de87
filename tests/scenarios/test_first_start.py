"""A cluster that trusts nobody, from an empty folder: its brokers log in to each other by SCRAM at the first start."""

import pytest
from cluster_scenario_harness import as_options

from certificates import certificate
from headrace import Admin, Producer
from headrace.client.admin_types import NewTopic
from headrace.testing.cluster_process import ClusterProcess, LocalClusterProcess
from headrace.testing.zookeeper_process import ZookeeperMissing, ZookeeperProcess
from headrace.tools import storage

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
CLIENT = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "admin",
    "sasl.password": "admin-secret",
}


def settings_with(made, folder):
    return {
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f'{SCRAM} username="admin" password="admin-secret";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
        "min.insync.replicas": "3",
        **made.write(folder),
    }


def test_three_brokers_log_in_to_each_other_by_scram(tmp_path):
    made = certificate()
    settings = settings_with(made, tmp_path)
    data = tmp_path / "data"
    user = "SCRAM-SHA-512=[name=admin,password=admin-secret]"
    assert storage.main(["format", "--brokers", "3", "--data", str(data), "--add-scram", user]) == 0
    options = [*as_options(settings), "--listen", "SASL_SSL://127.0.0.1:0"]
    for start in range(2):  # the user is still there at the second start
        with LocalClusterProcess(data, *options) as cluster:
            client = {"bootstrap.servers": cluster.address, **CLIENT, **made.trust_store()}
            with Admin(config=client) as admin, Producer(config=client | {"acks": "all"}) as producer:
                admin.create_topics([NewTopic(f"t{start}", 1, 3)])
                producer.send(f"t{start}", b"x").result(20)
            assert cluster.terminate() == 0


def test_a_cluster_of_apache_zookeeper(tmp_path):
    """The users go to the ZooKeeper of server.properties, below its chroot."""
    try:
        zookeeper = ZookeeperProcess(tmp_path / "zookeeper")
    except ZookeeperMissing as reason:
        pytest.skip(str(reason))
    made = certificate()
    with zookeeper:
        connect = f"{zookeeper.address}/logs"
        (tmp_path / "server.properties").write_text(f"zookeeper.connect={connect}\n")
        (tmp_path / "users").write_text("SCRAM-SHA-512=[name=admin,password=admin-secret]\n")
        users = ["--add-scram-file", str(tmp_path / "users")]
        assert storage.main(["format", "--config", str(tmp_path / "server.properties"), *users]) == 0
        options = as_options(settings_with(made, tmp_path))
        with ClusterProcess(tmp_path / "data", *options, zookeeper=connect, protocol="SASL_SSL") as cluster:
            client = {"bootstrap.servers": cluster.bootstrap_servers, **CLIENT, **made.trust_store()}
            with Admin(config=client) as admin, Producer(config=client | {"acks": "all"}) as producer:
                admin.create_topics([NewTopic("t", 1, 3)])
                producer.send("t", b"x").result(20)
