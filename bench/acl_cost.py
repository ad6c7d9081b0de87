"""Measures the cost of ACLs: Headrace with an authorizer and 10,000 rules against Headrace without, in turns.

Both brokers serve PLAINTEXT. The clients are anonymous, and a rule allows what they do: they are no super users, whom a
broker would recognize faster. The rules are made by a super user who logs in at a second listener.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import loads
import servers
from report import Row, Table
from turns import alternate

from headrace import Admin
from headrace.security.acls import AclBinding, AclOperation, PatternType, ResourceType
from headrace.testing.ports import free_port

RULES = 10_000
PEER = "Headrace without ACLs"
#: The topics of the benchmark begin so.
_PREFIX = "acl-"
_LOGIN = "SASL_PLAINTEXT"
_LINE = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="a" user_admin="a";'
_SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "sasl.enabled.mechanisms": "PLAIN",
    f"listener.name.{_LOGIN.lower()}.plain.sasl.jaas.config": _LINE,
}


def table() -> Table:
    return Table(
        {
            "produce": Row("produce, 100 B, 4 partitions, acks=all, librdkafka", "records/s", ">=", 0.97),
            "produce cpu": Row("broker CPU for that produce", "s", "<="),
            "small": Row("Produce requests of one record, acks=all, producer-perf-test", "requests/s", ">=", 0.97),
            "small cpu": Row("broker CPU of such a request", "µs", "<="),
        },
        peer=PEER,
    )


def measure(scale: float) -> Table:
    """Fills the table. The columns are the broker without ACLs, and the broker with 10,000 rules."""
    filled = table()
    bulk, small = int(2_000_000 * scale), int(100_000 * scale)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name, _brokers(Path(name)) as sides:
        for topic in (f"{_PREFIX}bulk", f"{_PREFIX}small"):
            for server in sides.values():
                loads.create_topic(server, topic, 4 if topic.endswith("bulk") else 1)
        produced = alternate(sides, lambda server: loads.produce(server, f"{_PREFIX}bulk", bulk), rounds=6)
        requests = alternate(
            sides, lambda server: loads.one_record_a_request(server, f"{_PREFIX}small", small), rounds=10
        )
    for side, rates in produced.items():
        filled.put(side, "produce", max(rate.per_second for rate in rates))
        filled.put(side, "produce cpu", min(rate.broker_cpu_seconds for rate in rates))
    for side, rates in requests.items():
        filled.put(side, "small", max(rate.per_second for rate in rates))
        filled.put(side, "small cpu", min(rate.broker_cpu_seconds for rate in rates))
    return filled


@contextmanager
def _brokers(folder: Path) -> Iterator[dict[str, servers.Server]]:
    """The sides of the table: ``apache`` is the column of the peer."""
    login_port = free_port()
    with (
        servers.headrace(folder / "open", {}) as without,
        servers.headrace(folder / "closed", _SETTINGS, listeners={_LOGIN: login_port}) as guarded,
    ):
        _make_rules(login_port)
        yield {"apache": without, "headrace": guarded}


def _make_rules(port: int) -> None:
    """A third are prefixes, and none of them fits the topics of the benchmark, but for those of the clients."""
    anonymous = "User:ANONYMOUS"
    rules = [
        AclBinding.of(ResourceType.TOPIC, _PREFIX, anonymous, operation, pattern_type=PatternType.PREFIXED)
        for operation in (AclOperation.WRITE, AclOperation.READ, AclOperation.CREATE)
    ]
    for number in range(RULES - len(rules)):
        kind = PatternType.PREFIXED if number % 3 == 0 else PatternType.LITERAL
        user = f"User:user-{number % 100}"
        rules.append(AclBinding.of(ResourceType.TOPIC, f"acm-{number}", user, AclOperation.WRITE, pattern_type=kind))
    config = {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "security.protocol": _LOGIN,
        "sasl.mechanism": "PLAIN",
        "sasl.username": "admin",
        "sasl.password": "a",
    }
    with Admin(config) as admin:
        admin.create_acls(rules, timeout_ms=60_000).all()
