"""Makes ``docs/apis.md`` and the README's table of APIs, from the registry of APIs and the docstrings of handlers.

An API is served if it has a handler; what it is for is then the first sentence of that file. For the others it stands
here, until they have one.
"""

from collections.abc import Iterator
from importlib import import_module

from headrace.broker import handlers
from headrace.broker.network.handler_binding import served_apis
from headrace.protocol.api import Api, versions_of
from headrace.tools.docs.markdown import table

BEGIN, END = "<!-- apis:begin -->", "<!-- apis:end -->"

_INTRODUCTION = """\
# APIs

<!-- Made by script/generate-docs from src/headrace/protocol/api.py and src/headrace/broker/handlers. Do not edit. -->

This page lists the requests of Kafka's protocol, and the versions that the broker answers. ApiVersions sends the same
list to clients. The broker closes the connection at a request of any other API or version, as Apache Kafka does.
"""

AREAS: dict[str, tuple[Api, ...]] = {
    "Records": (
        Api.PRODUCE, Api.FETCH, Api.LIST_OFFSETS, Api.DELETE_RECORDS, Api.INIT_PRODUCER_ID,
        Api.OFFSET_FOR_LEADER_EPOCH, Api.DESCRIBE_PRODUCERS,
    ),
    "Topics and cluster": (
        Api.API_VERSIONS, Api.METADATA, Api.CREATE_TOPICS, Api.DELETE_TOPICS, Api.CREATE_PARTITIONS,
        Api.DESCRIBE_TOPIC_PARTITIONS, Api.DESCRIBE_CLUSTER, Api.UPDATE_FEATURES,
    ),
    "Settings and disks": (
        Api.DESCRIBE_CONFIGS, Api.ALTER_CONFIGS, Api.INCREMENTAL_ALTER_CONFIGS, Api.LIST_CONFIG_RESOURCES,
        Api.DESCRIBE_LOG_DIRS, Api.ALTER_REPLICA_LOG_DIRS,
    ),
    "Groups": (
        Api.FIND_COORDINATOR, Api.JOIN_GROUP, Api.SYNC_GROUP, Api.HEARTBEAT, Api.LEAVE_GROUP, Api.OFFSET_COMMIT,
        Api.OFFSET_FETCH, Api.OFFSET_DELETE, Api.DESCRIBE_GROUPS, Api.LIST_GROUPS, Api.DELETE_GROUPS,
        Api.CONSUMER_GROUP_HEARTBEAT, Api.CONSUMER_GROUP_DESCRIBE,
    ),
    "Transactions": (
        Api.ADD_PARTITIONS_TO_TXN, Api.ADD_OFFSETS_TO_TXN, Api.TXN_OFFSET_COMMIT, Api.END_TXN, Api.WRITE_TXN_MARKERS,
        Api.DESCRIBE_TRANSACTIONS, Api.LIST_TRANSACTIONS,
    ),
    "Replication and controller": (
        Api.LEADER_AND_ISR, Api.STOP_REPLICA, Api.UPDATE_METADATA, Api.CONTROLLED_SHUTDOWN, Api.ELECT_LEADERS,
        Api.ALTER_PARTITION_REASSIGNMENTS, Api.LIST_PARTITION_REASSIGNMENTS,
    ),
    "Security and quotas": (
        Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE, Api.DESCRIBE_ACLS, Api.CREATE_ACLS, Api.DELETE_ACLS,
        Api.CREATE_DELEGATION_TOKEN, Api.RENEW_DELEGATION_TOKEN, Api.EXPIRE_DELEGATION_TOKEN,
        Api.DESCRIBE_DELEGATION_TOKEN, Api.DESCRIBE_CLIENT_QUOTAS, Api.ALTER_CLIENT_QUOTAS,
        Api.DESCRIBE_USER_SCRAM_CREDENTIALS, Api.ALTER_USER_SCRAM_CREDENTIALS,
    ),
    "Telemetry": (Api.GET_TELEMETRY_SUBSCRIPTIONS, Api.PUSH_TELEMETRY),
}  # fmt: skip

#: The purpose of APIs that have no handler yet.
_PLANNED = {
    Api.LEADER_AND_ISR: "the controller tells a broker what it leads and follows",
    Api.STOP_REPLICA: "the controller takes a replica off a broker",
    Api.UPDATE_METADATA: "the controller tells brokers of the cluster",
    Api.CONTROLLED_SHUTDOWN: "a broker asks to be relieved of its leaderships",
    Api.OFFSET_COMMIT: "stores a group's offsets",
    Api.OFFSET_FETCH: "a group's stored offsets",
    Api.FIND_COORDINATOR: "which broker coordinates a group or a transaction",
    Api.JOIN_GROUP: "a member joins its group",
    Api.HEARTBEAT: "a member is alive, and learns of rebalances",
    Api.LEAVE_GROUP: "a member leaves its group",
    Api.SYNC_GROUP: "a member gets its assignment",
    Api.DESCRIBE_GROUPS: "groups with their members",
    Api.LIST_GROUPS: "all groups of a broker",
    Api.DELETE_GROUPS: "groups and their offsets, gone",
    Api.OFFSET_DELETE: "forgets some of a group's offsets",
    Api.CONSUMER_GROUP_HEARTBEAT: "the one request of the new group protocol (KIP-848)",
    Api.CONSUMER_GROUP_DESCRIBE: "groups of the new protocol with their members",
    Api.SASL_HANDSHAKE: "agrees on how to authenticate",
    Api.SASL_AUTHENTICATE: "authenticates",
    Api.ADD_PARTITIONS_TO_TXN: "partitions that a transaction writes to",
    Api.ADD_OFFSETS_TO_TXN: "a group whose offsets a transaction commits",
    Api.TXN_OFFSET_COMMIT: "stores a group's offsets as part of a transaction",
    Api.END_TXN: "commits or aborts a transaction",
    Api.WRITE_TXN_MARKERS: "the coordinator ends a transaction in its partitions",
    Api.DESCRIBE_TRANSACTIONS: "transactions in detail",
    Api.LIST_TRANSACTIONS: "all transactions of a broker",
    Api.DESCRIBE_ACLS: "who may do what",
    Api.CREATE_ACLS: "grants or denies",
    Api.DELETE_ACLS: "takes grants back",
    Api.CREATE_DELEGATION_TOKEN: "a token to authenticate with",
    Api.RENEW_DELEGATION_TOKEN: "more time for a token",
    Api.EXPIRE_DELEGATION_TOKEN: "ends a token",
    Api.DESCRIBE_DELEGATION_TOKEN: "tokens and their owners",
    Api.DESCRIBE_CLIENT_QUOTAS: "limits of users and clients",
    Api.ALTER_CLIENT_QUOTAS: "sets limits of users and clients",
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: "users that have a SCRAM password",
    Api.ALTER_USER_SCRAM_CREDENTIALS: "sets and removes SCRAM passwords",
    Api.ALTER_REPLICA_LOG_DIRS: "moves a replica to another disk of its broker",
    Api.ELECT_LEADERS: "gives leadership back to preferred replicas",
    Api.ALTER_PARTITION_REASSIGNMENTS: "moves partitions between brokers",
    Api.LIST_PARTITION_REASSIGNMENTS: "moves that are under way",
    Api.GET_TELEMETRY_SUBSCRIPTIONS: "which metrics a client should push (KIP-714)",
    Api.PUSH_TELEMETRY: "a client's metrics",
}


def render() -> str:
    """The page."""
    return "\n".join(_page())


def _page() -> Iterator[str]:
    yield _INTRODUCTION
    for area, apis in AREAS.items():
        yield f"## {area}\n"
        yield from table(("Key", "API", "Versions", "Served", "What it is for"), map(_row, apis))


def _row(api: Api) -> tuple[str, ...]:
    return str(int(api)), api.label, _versions(api), _where(api), purpose_of(api)


def _where(api: Api) -> str:
    if api in served_apis(in_cluster=False):
        return "yes"
    return "in a cluster" if api in served_apis(in_cluster=True) else "not yet"


def purpose_of(api: Api) -> str:
    """The first sentence of the handler's docstring after ``Name (key N):``; without a handler, the planned purpose."""
    if api not in served_apis(in_cluster=True):
        return _PLANNED[api]
    document = import_module(f"{handlers.__name__}.{api.name.lower()}").__doc__ or ""
    name, colon, purpose = document.partition("\n")[0].partition(": ")
    assert name + colon == f"{api.label} (key {api:d}): ", f"{api.label}: its handler begins with {name!r}"
    return purpose.strip().removesuffix(".")


def _versions(api: Api) -> str:
    versions = versions_of(api)
    if not versions:
        return ""
    return str(versions[0]) if len(versions) == 1 else f"{versions[0]} to {versions[-1]}"


def readme_table() -> str:
    """The compact table: one line per area."""
    served = frozenset(served_apis(in_cluster=True))
    rows = []
    for area, apis in AREAS.items():
        works = ", ".join(f"{api.label} ({_versions(api)})" for api in apis if api in served)
        planned = ", ".join(api.label for api in apis if api not in served)
        rows.append((area, works or "–", planned or "–"))
    return "\n".join(table(("", "Works (versions)", "Not yet"), rows))


def with_table(readme: str) -> str:
    """The README with a new table between the two marks.

    :raises ValueError: if the README does not have exactly one pair of marks.
    """
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in after or END in after:
        raise ValueError(f"README.md must have {BEGIN} and, after it, {END}, once each")
    return f"{before}{BEGIN}\n{readme_table()}{END}{after}"
