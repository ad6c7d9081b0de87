"""Spark's workers log in with a delegation token of the driver: obtained, renewed, replaced; no password leaves."""

import logging
import pickle

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import BinaryType, StructField, StructType

from headrace.client.admin.delegation_tokens import DelegationToken
from headrace.client.errors import (
    BrokerError,
    BrokerUnreachable,
    ErrorCode,
    SaslAuthenticationFailed,
    UnsupportedByBroker,
    UnsupportedMechanism,
)
from headrace.pipeline.spark import worker_login
from headrace.pipeline.spark.options import BadOption
from headrace.pipeline.spark.sink.options import SinkOptions
from headrace.pipeline.spark.sink.writers import BatchSink, StreamSink
from headrace.pipeline.spark.source.data_source import HeadraceSource, LogReader, RangePartition, spark_schema
from headrace.pipeline.spark.source.options import SourceOptions
from headrace.pipeline.spark.source.stream_reader import StreamReader
from headrace.pipeline.spark.worker_login import WorkerLogin, WorkerLogins, without_login
from headrace.security.principal import Principal

ALICE = Principal("User", "alice")
PASSWORD = "the-password"
CLIENT = {
    "bootstrap.servers": "127.0.0.1:1",
    "security.protocol": "SASL_SSL",
    "ssl.truststore.location": "/ca.pem",
    "ssl.truststore.type": "PEM",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": PASSWORD,
}
DAY_MS = 86_400_000


class Cluster:
    """A cluster that makes tokens, without a network. It is also the admin client."""

    def __init__(self):
        self.now_ms = 0
        self.calls = []
        self.failure = None
        self.login_failures = {}
        self.max_ms = 7 * DAY_MS
        self.lifetime_ms = DAY_MS
        self._opened_with = None

    def open(self, client):
        self._opened_with = dict(client)
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def _called(self, name):
        self.calls.append(name)
        if self.failure is not None:
            raise self.failure

    def create_delegation_token(self):
        self._called("create")
        count = self.calls.count("create")
        return DelegationToken(
            f"token-{count}",
            ALICE,
            ALICE,
            (),
            self.now_ms,
            self.now_ms + self.lifetime_ms,
            self.now_ms + self.max_ms,
            b"hmac-%d" % count,
        )

    def renew_delegation_token(self, hmac):
        self._called(f"renew {hmac.decode()}")
        return self.now_ms + self.lifetime_ms

    def expire_delegation_token(self, hmac):
        self._called(f"expire {hmac.decode()}")
        return self.now_ms

    def check_login(self):
        mechanism = self._opened_with["sasl.mechanism"]
        self.calls.append(f"login {mechanism}")
        assert PASSWORD not in str(self._opened_with)
        failures = self.login_failures.get(mechanism, [])
        if failures:
            raise failures.pop(0) if len(failures) > 1 else failures[0]


@pytest.fixture
def cluster():
    return Cluster()


def logins(cluster, policy=WorkerLogin.TOKEN, **client):
    def sleep(seconds):
        cluster.now_ms += int(seconds * 1_000)

    given = CLIENT | {name.replace("_", "."): value for name, value in client.items()}
    return WorkerLogins(given, policy, open_admin=cluster.open, now_ms=lambda: cluster.now_ms, sleep=sleep)


def token_id(login):
    return login["sasl.jaas.config"].partition('username="')[2].partition('"')[0]


# -- obtaining a token


def test_workers_get_a_token_and_no_password(cluster):
    login = logins(cluster).login()
    assert login == {
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="token-1" password="aG1hYy0x" tokenauth="true";',
    }
    assert cluster.calls == ["create", "login SCRAM-SHA-512"]


def test_the_mechanism_of_the_driver_is_tried_first(cluster):
    login = logins(cluster, sasl_mechanism="SCRAM-SHA-256").login()
    assert login["sasl.mechanism"] == "SCRAM-SHA-256"


def test_another_mechanism_is_used_if_the_first_is_not_offered(cluster):
    cluster.login_failures["SCRAM-SHA-512"] = [UnsupportedMechanism("no such mechanism")]
    assert logins(cluster).login()["sasl.mechanism"] == "SCRAM-SHA-256"


def test_the_driver_waits_until_all_brokers_know_the_token(cluster):
    unknown = SaslAuthenticationFailed("invalid credentials")
    failures = [unknown, unknown, None]

    def check_login():
        cluster.calls.append("login")
        error = failures.pop(0)
        if error is not None:
            raise error

    cluster.check_login = check_login
    assert token_id(logins(cluster).login()) == "token-1"
    assert cluster.calls == ["create", "login", "login", "login"]


NO_TOKENS = [
    (BrokerError(ErrorCode.delegation_token_auth_disabled), "the cluster has no delegation tokens"),
    (BrokerError(ErrorCode.delegation_token_request_not_allowed), "gives no delegation token to this login"),
    (UnsupportedByBroker(message="too old"), "too old"),
]


@pytest.mark.parametrize(("failure", "reason"), NO_TOKENS)
def test_without_tokens_the_password_is_sent_only_if_that_is_allowed(cluster, failure, reason, caplog):
    cluster.failure = failure
    with pytest.raises(BadOption, match=f"Spark's workers get no login: .*{reason}.*workerLogin to any") as caught:
        logins(cluster).login()
    assert PASSWORD not in str(caught.value)
    allowed = logins(cluster, WorkerLogin.ANY)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert allowed.login() == {
                "sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": PASSWORD,
            }  # fmt: skip
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert reason in caplog.text
    assert PASSWORD not in caplog.text


def test_a_token_that_no_mechanism_accepts_is_no_token(cluster):
    for mechanism in ("SCRAM-SHA-512", "SCRAM-SHA-256"):
        cluster.login_failures[mechanism] = [SaslAuthenticationFailed("invalid credentials")]
    with pytest.raises(BadOption, match="the brokers do not accept a delegation token"):
        logins(cluster).login()


def test_an_unreachable_cluster_is_not_a_reason_to_send_the_password(cluster):
    cluster.failure = BrokerUnreachable("nobody answers")
    with pytest.raises(BrokerUnreachable):
        logins(cluster, WorkerLogin.ANY).login()


def test_the_password_is_sent_at_once_if_the_option_says_so(cluster):
    assert logins(cluster, WorkerLogin.PASSWORD).login()["sasl.password"] == PASSWORD
    assert cluster.calls == []


def test_without_sasl_there_is_no_login(cluster):
    given = WorkerLogins(
        {"bootstrap.servers": "x", "security.protocol": "SSL"}, WorkerLogin.TOKEN, open_admin=cluster.open
    )
    assert given.login() == {}
    assert cluster.calls == []


def test_a_driver_with_a_token_hands_its_token_over(cluster):
    """No token can be made with a token."""
    own = {
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="id" password="hmac" tokenauth="true";',
    }
    client = {"bootstrap.servers": "x", "security.protocol": "SASL_SSL", **own}
    assert WorkerLogins(client, WorkerLogin.TOKEN, open_admin=cluster.open).login() == own
    assert cluster.calls == []


# -- long streams


@pytest.mark.parametrize(("lifetime_ms", "renewed_after_ms"), [(DAY_MS, 600_000), (60_000, 30_000)])
def test_a_token_is_renewed_before_it_expires(cluster, lifetime_ms, renewed_after_ms):
    cluster.lifetime_ms = lifetime_ms
    given = logins(cluster)
    given.login()
    cluster.now_ms = renewed_after_ms - 1
    given.login()
    assert cluster.calls.count("renew hmac-1") == 0
    cluster.now_ms = renewed_after_ms
    assert token_id(given.login()) == "token-1"
    assert cluster.calls.count("renew hmac-1") == 1
    given.login()
    assert cluster.calls.count("renew hmac-1") == 1


def test_a_stream_of_months_always_has_a_valid_token(cluster):
    given = logins(cluster)
    seen = set()
    for hour in range(24 * 60):
        cluster.now_ms = hour * 3_600_000
        seen.add(token_id(given.login()))
        assert given._expiry_ms - cluster.now_ms >= DAY_MS - 3_600_000
    assert 60 / 7 <= len(seen) <= 60 / 5


def test_a_token_that_cannot_be_renewed_is_replaced(cluster):
    given = logins(cluster)
    given.login()
    cluster.now_ms = DAY_MS // 2
    renew = cluster.renew_delegation_token

    def refuse(hmac):
        renew(hmac)
        raise BrokerError(ErrorCode.delegation_token_not_found)

    cluster.renew_delegation_token = refuse
    assert token_id(given.login()) == "token-2"


def test_a_cluster_that_is_away_for_a_while_does_not_end_the_stream(cluster, caplog):
    given = logins(cluster)
    given.login()
    cluster.failure = BrokerUnreachable("nobody answers")
    cluster.now_ms = DAY_MS - 1
    assert token_id(given.login()) == "token-1"
    assert "was not renewed: nobody answers" in caplog.text
    cluster.now_ms = DAY_MS
    with pytest.raises(BrokerUnreachable):
        given.login()


def test_a_token_is_ended_with_its_query(cluster):
    given = logins(cluster)
    given.close()
    given.login()
    given.close()
    given.close()
    assert cluster.calls[-1:] == ["expire hmac-1"]
    assert cluster.calls.count("expire hmac-1") == 1
    cluster.failure = BrokerUnreachable("nobody answers")
    given._token = None
    given.close()


# -- what Spark pickles for tasks

SECRETS = {
    "sasl.jaas.config": 'PlainLoginModule required username="a" password="hidden-1";',
    "sasl.password": "hidden-2",
    "sasl.plain.password": "hidden-3",
    "sasl.oauthbearer.client.credentials.client.secret": "hidden-4",
}


def test_no_secret_of_a_login_stays_in_the_options_of_workers():
    client = {**CLIENT, **SECRETS}
    assert without_login(client) == {
        name: CLIENT[name]
        for name in ("bootstrap.servers", "security.protocol", "ssl.truststore.location", "ssl.truststore.type")
    }


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_pickled_source_has_no_password(is_stream):
    given = {f"kafka.{name}": value for name, value in CLIENT.items() if not name.startswith("ssl.")}
    given |= {"kafka.security.protocol": "SASL_PLAINTEXT", "subscribe": "t", "workerLogin": "any"}
    source = HeadraceSource(CaseInsensitiveDict(given))
    assert PASSWORD.encode() in pickle.dumps(source)  # the process that plans needs it
    schema = spark_schema(include_headers=False)
    reader = source.streamReader(schema) if is_stream else source.reader(schema)
    assert isinstance(reader, StreamReader if is_stream else LogReader)
    pickled = pickle.dumps((reader, source))
    assert PASSWORD.encode() not in pickled
    copy, copied_source = pickle.loads(pickled)
    assert copy._options == reader._options.for_workers()
    assert copied_source.options["subscribe"] == "t"
    assert PASSWORD not in repr(reader._options)
    if is_stream:
        reader.stop()


@pytest.mark.parametrize("kind", [BatchSink, StreamSink])
def test_a_pickled_sink_has_a_token_and_no_password(kind, cluster, monkeypatch):
    monkeypatch.setattr(worker_login, "_LOGINS", {})
    monkeypatch.setattr(worker_login, "WorkerLogins", lambda client, policy: logins(cluster, policy))
    given = {f"kafka.{name}": value for name, value in CLIENT.items()} | {"topic": "t"}
    given = {name: value for name, value in given.items() if "ssl." not in name}
    given["kafka.security.protocol"] = "SASL_PLAINTEXT"
    sink = kind.for_schema(given, StructType([StructField("value", BinaryType())]), overwrite=False)
    assert cluster.calls == []  # the process that commits a micro-batch makes no token
    pickled = pickle.dumps(sink)
    pickle.dumps(kind.for_schema(given, StructType([StructField("value", BinaryType())]), overwrite=False))
    assert cluster.calls.count("create") == 1
    assert PASSWORD.encode() not in pickled
    options = pickle.loads(pickled)._options
    assert isinstance(options, SinkOptions)
    assert token_id(options.client) == "token-1"
    assert options.topic == "t"


def test_the_login_of_a_range_is_not_shown():
    options = SourceOptions.parse({"kafka.bootstrap.servers": "x:1", "subscribe": "t"}, is_stream=False)
    partition = RangePartition.__new__(RangePartition)
    partition.__init__(("t", 0, 1, 2), {"sasl.jaas.config": "hidden"})
    assert "hidden" not in repr(partition)
    assert options.with_login(partition.login).client["sasl.jaas.config"] == "hidden"
    assert "hidden" not in repr(options.with_login(partition.login))


def test_a_wrong_value_is_refused():
    with pytest.raises(BadOption, match="must be one of token, any, password"):
        SourceOptions.parse({"kafka.bootstrap.servers": "x:1", "subscribe": "t", "workerlogin": "yes"}, is_stream=False)


@pytest.mark.parametrize("policy", list(WorkerLogin))
def test_a_password_that_nobody_uses_stays_on_the_driver(policy):
    """A listener without SASL needs no login, whatever is left in the options."""
    for protocol in ("PLAINTEXT", "SSL", "ssl", ""):
        assert WorkerLogins({**CLIENT, "security.protocol": protocol}, policy).login() == {}
