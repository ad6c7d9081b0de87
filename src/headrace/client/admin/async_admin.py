"""AsyncAdmin: administers a cluster: topics, settings, offsets, groups, transactions and brokers.

::

    async with AsyncAdmin(bootstrap_servers="127.0.0.1:9092") as admin:
        await admin.create_topic("orders", num_partitions=3)
        for group in await admin.list_groups(): ...

A method for one item returns its value, or raises an error. A method for many items returns :class:`Results`, a dict
that has the value or the exception of each item. Each method takes ``timeout_ms``, which limits the call with all its
retries. The default is ``default.api.timeout.ms``. If a broker does not support a request, the error is
:class:`UnsupportedByBroker`.

Each subject is an object of its own (``topics.py``, ``groups.py``, ...). They share the requests (``requests.py``) and
nothing else. The class below lists all methods, as a table of contents.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar
from uuid import UUID

from headrace.client.admin.acls import AclsAdmin
from headrace.client.admin.cluster import ClusterAdmin
from headrace.client.admin.configs import ConfigsAdmin
from headrace.client.admin.delegation_tokens import DelegationTokensAdmin
from headrace.client.admin.group_offsets import GroupOffsetsAdmin
from headrace.client.admin.groups import GroupsAdmin
from headrace.client.admin.quotas import QuotasAdmin
from headrace.client.admin.records import RecordsAdmin
from headrace.client.admin.requests import AdminRequests
from headrace.client.admin.scram import ScramAdmin
from headrace.client.admin.topics import TopicsAdmin
from headrace.client.admin.transactions import TransactionsAdmin
from headrace.client.config import AdminConfig
from headrace.client.metrics.registry import Metrics

_S = TypeVar("_S")
_T = TypeVar("_T")
_P = ParamSpec("_P")


def _method_of(
    subject: str, method: Callable[Concatenate[_S, _P], Coroutine[Any, Any, _T]]
) -> Callable[Concatenate[AsyncAdmin, _P], Coroutine[Any, Any, _T]]:
    """Makes a method of :class:`AsyncAdmin` from a method of one of its subjects."""

    @wraps(method)
    async def call(self: AsyncAdmin, /, *arguments: _P.args, **keywords: _P.kwargs) -> _T:
        return await method(getattr(self, subject), *arguments, **keywords)

    return call


class AsyncAdmin:
    """Administers a cluster. ``start`` connects to the cluster, ``close`` disconnects. ``async with`` does both."""

    def __init__(self, config: Mapping[str, object] | None = None, **options: object) -> None:
        """
        :param config: options by Kafka's names, ``{"request.timeout.ms": 5000}``.
        :param options: options by Python's names, ``bootstrap_servers="127.0.0.1:9092"``.
        """
        self.config = AdminConfig.load(config, **options)
        self._requests = requests = AdminRequests(self.config)
        self._topics = TopicsAdmin(requests)
        self._configs = ConfigsAdmin(requests)
        self._records = RecordsAdmin(requests)
        self._groups = GroupsAdmin(requests)
        self._group_offsets = GroupOffsetsAdmin(requests)
        self._transactions = TransactionsAdmin(requests)
        self._scram = ScramAdmin(requests)
        self._quotas = QuotasAdmin(requests)
        self._delegation_tokens = DelegationTokensAdmin(requests)
        self._acls = AclsAdmin(requests)
        self._cluster = ClusterAdmin(requests)

    async def start(self, *, timeout_ms: float | None = None) -> None:
        """Connects to the cluster. If it was not called, the first request does it.

        :raises BrokerUnreachable: if no broker answers in time.
        """
        await self._requests.cluster.start(timeout_ms=timeout_ms)

    async def close(self) -> None:
        """Closes all connections."""
        await self._requests.telemetry.close()
        await self._requests.cluster.close()

    def metrics(self) -> Metrics:
        """Returns the metrics of the client, under the names of Java's admin client; see docs/client-metrics.md."""
        return self._requests.registry.metrics()

    async def client_instance_id(self, *, timeout_ms: float | None = None) -> UUID:
        """Returns the id under which a broker stores the metrics of this client; see docs/clients.md, telemetry."""
        await self._requests.cluster.ensure_fresh(timeout_ms=timeout_ms)
        return await self._requests.telemetry.client_instance_id(timeout_ms)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    create_topics = _method_of("_topics", TopicsAdmin.create_topics)
    create_topic = _method_of("_topics", TopicsAdmin.create_topic)
    delete_topics = _method_of("_topics", TopicsAdmin.delete_topics)
    delete_topic = _method_of("_topics", TopicsAdmin.delete_topic)
    list_topics = _method_of("_topics", TopicsAdmin.list_topics)
    describe_topics = _method_of("_topics", TopicsAdmin.describe_topics)
    describe_topic = _method_of("_topics", TopicsAdmin.describe_topic)
    create_partitions = _method_of("_topics", TopicsAdmin.create_partitions)

    describe_configs = _method_of("_configs", ConfigsAdmin.describe_configs)
    describe_config = _method_of("_configs", ConfigsAdmin.describe_config)
    list_config_resources = _method_of("_configs", ConfigsAdmin.list_config_resources)
    alter_configs = _method_of("_configs", ConfigsAdmin.alter_configs)
    alter_config = _method_of("_configs", ConfigsAdmin.alter_config)

    list_offsets = _method_of("_records", RecordsAdmin.list_offsets)
    delete_records = _method_of("_records", RecordsAdmin.delete_records)
    describe_producers = _method_of("_records", RecordsAdmin.describe_producers)

    list_groups = _method_of("_groups", GroupsAdmin.list_groups)
    describe_groups = _method_of("_groups", GroupsAdmin.describe_groups)
    describe_group = _method_of("_groups", GroupsAdmin.describe_group)
    delete_groups = _method_of("_groups", GroupsAdmin.delete_groups)
    delete_group = _method_of("_groups", GroupsAdmin.delete_group)
    remove_members = _method_of("_groups", GroupsAdmin.remove_members)

    list_group_offsets = _method_of("_group_offsets", GroupOffsetsAdmin.list_group_offsets)
    alter_group_offsets = _method_of("_group_offsets", GroupOffsetsAdmin.alter_group_offsets)
    delete_group_offsets = _method_of("_group_offsets", GroupOffsetsAdmin.delete_group_offsets)

    list_transactions = _method_of("_transactions", TransactionsAdmin.list_transactions)
    describe_transactions = _method_of("_transactions", TransactionsAdmin.describe_transactions)
    describe_transaction = _method_of("_transactions", TransactionsAdmin.describe_transaction)
    abort_transaction = _method_of("_transactions", TransactionsAdmin.abort_transaction)
    fence_producers = _method_of("_transactions", TransactionsAdmin.fence_producers)

    describe_user_scram_credentials = _method_of("_scram", ScramAdmin.describe_user_scram_credentials)
    alter_user_scram_credentials = _method_of("_scram", ScramAdmin.alter_user_scram_credentials)

    describe_client_quotas = _method_of("_quotas", QuotasAdmin.describe_client_quotas)
    alter_client_quotas = _method_of("_quotas", QuotasAdmin.alter_client_quotas)

    create_delegation_token = _method_of("_delegation_tokens", DelegationTokensAdmin.create_delegation_token)
    renew_delegation_token = _method_of("_delegation_tokens", DelegationTokensAdmin.renew_delegation_token)
    expire_delegation_token = _method_of("_delegation_tokens", DelegationTokensAdmin.expire_delegation_token)
    describe_delegation_tokens = _method_of("_delegation_tokens", DelegationTokensAdmin.describe_delegation_tokens)

    describe_acls = _method_of("_acls", AclsAdmin.describe_acls)
    create_acls = _method_of("_acls", AclsAdmin.create_acls)
    delete_acls = _method_of("_acls", AclsAdmin.delete_acls)

    describe_cluster = _method_of("_cluster", ClusterAdmin.describe_cluster)
    describe_features = _method_of("_cluster", ClusterAdmin.describe_features)
    api_versions = _method_of("_cluster", ClusterAdmin.api_versions)
    describe_log_dirs = _method_of("_cluster", ClusterAdmin.describe_log_dirs)
    alter_replica_log_dirs = _method_of("_cluster", ClusterAdmin.alter_replica_log_dirs)
    elect_leaders = _method_of("_cluster", ClusterAdmin.elect_leaders)
    alter_partition_reassignments = _method_of("_cluster", ClusterAdmin.alter_partition_reassignments)
    list_partition_reassignments = _method_of("_cluster", ClusterAdmin.list_partition_reassignments)
