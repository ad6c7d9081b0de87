"""Three brokers that log in to each other by OAUTHBEARER, with tokens that live for seconds."""

import time

from cluster_scenario_harness import as_options, until

from headrace import Admin, Producer
from headrace.client.admin_types import NewTopic
from headrace.testing.cluster_process import ClusterProcess
from token_harness import answer, endpoint, key_set, signed

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
LIFETIME_S = 5
CLIENT = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}


def token(lifetime_s):
    now_s = int(time.time())
    return signed(sub="broker", iat=now_s, exp=now_s + lifetime_s)


def new_token():
    return answer(token(LIFETIME_S), expires_in=LIFETIME_S)


def test_brokers_renew_their_tokens_and_replication_goes_on(tmp_path):
    (tmp_path / "keys.json").write_bytes(key_set())
    keys = (tmp_path / "keys.json").as_uri()
    with endpoint(new_token) as (url, asked):
        settings = {
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": keys,
            "sasl.oauthbearer.token.endpoint.url": url,
            "org.apache.kafka.sasl.oauthbearer.allowed.urls": f"{keys},{url}",
            "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": (
                f'{MODULE} clientId="broker" clientSecret="s";'
            ),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:broker",
            "default.replication.factor": "3",
            "min.insync.replicas": "3",
            "replica.lag.time.max.ms": "3000",
        }
        options = as_options(settings)
        with ClusterProcess(tmp_path / "data", *options, protocol="SASL_PLAINTEXT") as cluster:
            client = {
                "bootstrap.servers": cluster.bootstrap_servers,
                **CLIENT,
                "sasl.oauth.token.provider": lambda: token(600),
            }
            with Admin(config=client) as admin, Producer(config=client | {"acks": "all"}) as producer:
                admin.create_topics([NewTopic("t", 3, 3)])
                ends_at = time.monotonic() + 3 * LIFETIME_S
                while time.monotonic() < ends_at:
                    for partition in range(3):
                        producer.send("t", b"x", partition=partition).result(10)
                    time.sleep(0.05)
                assert len(asked) >= 6  # three brokers, each with its first token and a successor
                assert _all_in_sync(admin)
                logs = [cluster.log(number) for number in cluster.brokers]
                assert not any("clientSecret" in log or "rejected the login" in log for log in logs)
                cluster.kill(1)
                cluster.restart(1)
                until(lambda: len(admin.describe_cluster().brokers) == 3, "broker 1 is back")
                until(lambda: _all_in_sync(admin), "broker 1 has caught up")


def _all_in_sync(admin):
    (topic,) = admin.describe_topics(["t"]).values()
    return all(len(partition.in_sync_replicas) == 3 for partition in topic.partitions)
