"""Rows of the ACL matrix: settings of topics, brokers, loggers, groups, client metrics; telemetry, features, quotas."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from headrace.protocol.api import Api

from .cells import Cell, Op, Row, cluster, group, topic
from .rows_records import TOPIC_B

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
BROKER_ID = "1"
_AB = ("a", "b")
_SHOWS = frozenset({"configs"})
_HIDES = frozenset({"read_only", "is_sensitive"})


def _describe(resources: list[tuple[int, str]], keys: list[str] | None) -> dict[str, Any]:
    return {
        "resources": [
            {"resource_type": kind, "resource_name": name, "configuration_keys": keys} for kind, name in resources
        ],
        "include_synonyms": False,
        "include_documentation": False,
    }


def _describe_topics(keys: list[str] | None) -> Any:
    return lambda cell: _describe([(TOPIC, cell.name(short)) for short in ("a", "b", "c")], keys)


def _describe_one(kind: int, name: str | None = None, keys: list[str] | None = None) -> Any:
    return lambda cell: _describe([(kind, cell.name("g") if name is None else name)], keys)


_TOPIC_CONFIGS, _CLUSTER_CONFIGS = (topic(Op.DESCRIBE_CONFIGS),), (cluster(Op.DESCRIBE_CONFIGS),)
DESCRIBE = (
    Row(
        "describe_configs_topic",
        Api.DESCRIBE_CONFIGS,
        4,
        _describe_topics(["retention.ms"]),
        _TOPIC_CONFIGS,
        (TOPIC_B,),
        _AB,
        shows=_SHOWS,
        hides=_HIDES,
    ),
    Row("describe_configs_topic_all", Api.DESCRIBE_CONFIGS, 1, _describe_topics(None), _TOPIC_CONFIGS, (TOPIC_B,), _AB),
    Row(
        "describe_configs_alter",
        Api.DESCRIBE_CONFIGS,
        4,
        _describe_topics(["retention.ms"]),
        (topic(Op.ALTER_CONFIGS),),
        (TOPIC_B,),
        _AB,
        shows=_SHOWS,
        hides=_HIDES,
    ),
    Row(
        "describe_configs_broker",
        Api.DESCRIBE_CONFIGS,
        4,
        _describe_one(BROKER, BROKER_ID, ["log.retention.ms"]),
        _CLUSTER_CONFIGS,
        shows=_SHOWS,
        hides=_HIDES,
    ),
    # Apache Kafka 4 has a dynamic default of its own (min.insync.replicas).
    Row(
        "describe_configs_default",
        Api.DESCRIBE_CONFIGS,
        4,
        _describe_one(BROKER, ""),
        _CLUSTER_CONFIGS,
        hides=frozenset({"configs"}),
    ),
    Row("describe_configs_logger", Api.DESCRIBE_CONFIGS, 4, _describe_one(LOGGER, BROKER_ID), _CLUSTER_CONFIGS),
    Row("describe_configs_group", Api.DESCRIBE_CONFIGS, 4, _describe_one(GROUP), (group(Op.DESCRIBE_CONFIGS),)),
    Row("describe_configs_metrics", Api.DESCRIBE_CONFIGS, 4, _describe_one(CLIENT_METRICS), _CLUSTER_CONFIGS),
    Row(
        "describe_configs_mixed",
        Api.DESCRIBE_CONFIGS,
        4,
        lambda cell: _describe([(TOPIC, cell.name("a")), (BROKER, BROKER_ID), (GROUP, cell.name("g"))], None),
        _TOPIC_CONFIGS,
        (TOPIC_B,),
        _AB,
    ),
    Row(
        "list_configs",
        Api.LIST_CONFIG_RESOURCES,
        1,
        lambda _: {"resource_types": [TOPIC]},
        _CLUSTER_CONFIGS,
        (),
        _AB,
        only_own=True,
    ),
    Row("list_configs_v0", Api.LIST_CONFIG_RESOURCES, 0, lambda _: {}, _CLUSTER_CONFIGS, only_own=True),
)


def _alter(resources: list[tuple[int, str]], name: str, value: str, *, incremental: bool) -> dict[str, Any]:
    config = {"name": name, "value": value, **({"config_operation": 0} if incremental else {})}
    return {
        "resources": [
            {"resource_type": kind, "resource_name": resource, "configs": [config]} for kind, resource in resources
        ],
        "validate_only": False,
    }


def _alter_topics(*, incremental: bool) -> Any:
    return lambda cell: _alter(
        [(TOPIC, cell.name(short)) for short in ("a", "b", "c")], "retention.ms", "3600000", incremental=incremental
    )


def _alter_one(kind: int, resource: str | None, name: str, value: str) -> Any:
    return lambda cell: _alter(
        [(kind, cell.name("g") if resource is None else resource)], name, value, incremental=True
    )


_ALTERS, _CLUSTER_ALTERS = (topic(Op.ALTER_CONFIGS),), (cluster(Op.ALTER_CONFIGS),)
ALTER = (
    Row("alter_configs", Api.ALTER_CONFIGS, 2, _alter_topics(incremental=False), _ALTERS, (TOPIC_B,), _AB),
    Row(
        "alter_configs_broker",
        Api.ALTER_CONFIGS,
        2,
        lambda _: _alter([(BROKER, BROKER_ID)], "log.retention.ms", "604800000", incremental=False),
        _CLUSTER_ALTERS,
    ),
    Row(
        "incremental_topic", Api.INCREMENTAL_ALTER_CONFIGS, 1, _alter_topics(incremental=True), _ALTERS, (TOPIC_B,), _AB
    ),
    Row(
        "incremental_default",
        Api.INCREMENTAL_ALTER_CONFIGS,
        1,
        _alter_one(BROKER, "", "log.retention.ms", "604800000"),
        _CLUSTER_ALTERS,
    ),
    Row(
        "incremental_broker",
        Api.INCREMENTAL_ALTER_CONFIGS,
        1,
        _alter_one(BROKER, BROKER_ID, "log.retention.ms", "604800000"),
        _CLUSTER_ALTERS,
    ),
    Row(
        "incremental_group",
        Api.INCREMENTAL_ALTER_CONFIGS,
        1,
        _alter_one(GROUP, None, "consumer.session.timeout.ms", "50000"),
        (group(Op.ALTER_CONFIGS),),
    ),
    Row(
        "incremental_metrics",
        Api.INCREMENTAL_ALTER_CONFIGS,
        1,
        _alter_one(CLIENT_METRICS, None, "interval.ms", "60000"),
        _CLUSTER_ALTERS,
    ),
    Row(
        "incremental_logger",
        Api.INCREMENTAL_ALTER_CONFIGS,
        1,
        _alter_one(LOGGER, BROKER_ID, "root", "INFO"),
        _CLUSTER_ALTERS,
    ),
)
_PUSH = {"subscription_id": 0, "terminating": False, "compression_type": 0, "metrics": b""}
TELEMETRY = (
    Row("get_telemetry", Api.GET_TELEMETRY_SUBSCRIPTIONS, 0, lambda _: {"client_instance_id": None}),
    Row("push_telemetry", Api.PUSH_TELEMETRY, 0, lambda _: {"client_instance_id": uuid4(), **_PUSH}),
)
FEATURES = (
    Row(
        "update_features",
        Api.UPDATE_FEATURES,
        1,
        lambda _: {
            "timeout": 10_000,
            "feature_updates": [{"feature": "no.feature", "max_version_level": 1, "upgrade_type": 1}],
            "validate_only": True,
        },
        (cluster(Op.ALTER),),
    ),
)


def _alter_quotas(cell: Cell) -> dict[str, Any]:
    entity = [{"entity_type": "client-id", "entity_name": cell.name("c")}]
    ops = [{"key": "producer_byte_rate", "value": 1_000_000.0, "remove": False}]
    return {"entries": [{"entity": entity, "ops": ops}], "validate_only": False}


def _describe_quotas(cell: Cell) -> dict[str, Any]:
    exactly = {"entity_type": "client-id", "match_type": 0, "match": cell.name("c")}
    return {"components": [exactly], "strict": True}


QUOTAS = (
    Row("alter_quotas", Api.ALTER_CLIENT_QUOTAS, 1, _alter_quotas, _CLUSTER_ALTERS),
    Row("describe_quotas", Api.DESCRIBE_CLIENT_QUOTAS, 1, _describe_quotas, _CLUSTER_CONFIGS),
)
ROWS = DESCRIBE + ALTER + TELEMETRY + FEATURES + QUOTAS
