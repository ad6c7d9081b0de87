"""Admin: the blocking admin client. Each method waits for the method of :class:`AsyncAdmin` with the same name.

::

    with Admin(bootstrap_servers="127.0.0.1:9092") as admin:
        admin.create_topic("orders", num_partitions=3)

Several threads may use one client at once.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from headrace.client import background
from headrace.client.admin.async_admin import AsyncAdmin
from headrace.client.metrics.registry import Metrics

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _blocking(
    method: Callable[Concatenate[AsyncAdmin, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate[Admin, _P], _T]:
    """Makes a blocking method with the same parameters."""

    @wraps(method)
    def run(self: Admin, /, *arguments: _P.args, **keywords: _P.kwargs) -> _T:
        return self._background.run(method(self._admin, *arguments, **keywords))

    return run


class Admin:
    """Administers a cluster. Blocks while it waits; see :class:`AsyncAdmin` for asyncio."""

    def __init__(self, config: Mapping[str, object] | None = None, **options: object) -> None:
        """
        :param config: options by Kafka's names, ``{"request.timeout.ms": 5000}``.
        :param options: options by Python's names, ``bootstrap_servers="127.0.0.1:9092"``.
        """
        self._admin = AsyncAdmin(config=config, **options)
        self._background = background.current()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def metrics(self) -> Metrics:
        """Returns the metrics of the client; see :meth:`AsyncAdmin.metrics`. It does not wait."""
        return self._admin.metrics()

    start = _blocking(AsyncAdmin.start)
    close = _blocking(AsyncAdmin.close)
    client_instance_id = _blocking(AsyncAdmin.client_instance_id)

    create_topics = _blocking(AsyncAdmin.create_topics)
    create_topic = _blocking(AsyncAdmin.create_topic)
    delete_topics = _blocking(AsyncAdmin.delete_topics)
    delete_topic = _blocking(AsyncAdmin.delete_topic)
    list_topics = _blocking(AsyncAdmin.list_topics)
    describe_topics = _blocking(AsyncAdmin.describe_topics)
    describe_topic = _blocking(AsyncAdmin.describe_topic)
    create_partitions = _blocking(AsyncAdmin.create_partitions)

    describe_configs = _blocking(AsyncAdmin.describe_configs)
    describe_config = _blocking(AsyncAdmin.describe_config)
    list_config_resources = _blocking(AsyncAdmin.list_config_resources)
    alter_configs = _blocking(AsyncAdmin.alter_configs)
    alter_config = _blocking(AsyncAdmin.alter_config)

    list_offsets = _blocking(AsyncAdmin.list_offsets)
    delete_records = _blocking(AsyncAdmin.delete_records)
    describe_producers = _blocking(AsyncAdmin.describe_producers)

    list_groups = _blocking(AsyncAdmin.list_groups)
    describe_groups = _blocking(AsyncAdmin.describe_groups)
    describe_group = _blocking(AsyncAdmin.describe_group)
    delete_groups = _blocking(AsyncAdmin.delete_groups)
    delete_group = _blocking(AsyncAdmin.delete_group)
    remove_members = _blocking(AsyncAdmin.remove_members)
    list_group_offsets = _blocking(AsyncAdmin.list_group_offsets)
    alter_group_offsets = _blocking(AsyncAdmin.alter_group_offsets)
    delete_group_offsets = _blocking(AsyncAdmin.delete_group_offsets)

    list_transactions = _blocking(AsyncAdmin.list_transactions)
    describe_transactions = _blocking(AsyncAdmin.describe_transactions)
    describe_transaction = _blocking(AsyncAdmin.describe_transaction)
    abort_transaction = _blocking(AsyncAdmin.abort_transaction)
    fence_producers = _blocking(AsyncAdmin.fence_producers)

    describe_user_scram_credentials = _blocking(AsyncAdmin.describe_user_scram_credentials)
    alter_user_scram_credentials = _blocking(AsyncAdmin.alter_user_scram_credentials)

    describe_client_quotas = _blocking(AsyncAdmin.describe_client_quotas)
    alter_client_quotas = _blocking(AsyncAdmin.alter_client_quotas)

    create_delegation_token = _blocking(AsyncAdmin.create_delegation_token)
    renew_delegation_token = _blocking(AsyncAdmin.renew_delegation_token)
    expire_delegation_token = _blocking(AsyncAdmin.expire_delegation_token)
    describe_delegation_tokens = _blocking(AsyncAdmin.describe_delegation_tokens)

    describe_acls = _blocking(AsyncAdmin.describe_acls)
    create_acls = _blocking(AsyncAdmin.create_acls)
    delete_acls = _blocking(AsyncAdmin.delete_acls)

    describe_cluster = _blocking(AsyncAdmin.describe_cluster)
    describe_features = _blocking(AsyncAdmin.describe_features)
    api_versions = _blocking(AsyncAdmin.api_versions)
    describe_log_dirs = _blocking(AsyncAdmin.describe_log_dirs)
    alter_replica_log_dirs = _blocking(AsyncAdmin.alter_replica_log_dirs)
    elect_leaders = _blocking(AsyncAdmin.elect_leaders)
    alter_partition_reassignments = _blocking(AsyncAdmin.alter_partition_reassignments)
    list_partition_reassignments = _blocking(AsyncAdmin.list_partition_reassignments)
