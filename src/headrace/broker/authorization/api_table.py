"""THE table of what each API asks of the authorizer: the operation, the resource, and what happens without the right.

The handlers ask; this table says what they ask, for the docs and for the tests. A test denies everything and checks
that each handler asks for something that is in its rows, and that the answers succeed in nothing and name nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.protocol.api import Api
from headrace.security.acls import AclOperation, ResourceType

_TOPIC, _GROUP, _CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
_TRANSACTIONAL_ID, _TOKEN, _USER = ResourceType.TRANSACTIONAL_ID, ResourceType.DELEGATION_TOKEN, ResourceType.USER
_READ, _WRITE, _CREATE, _DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE
_ALTER, _DESCRIBE, _CLUSTER_ACTION = AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION
_DESCRIBE_CONFIGS, _ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
_IDEMPOTENT_WRITE, _TWO_PHASE_COMMIT = AclOperation.IDEMPOTENT_WRITE, AclOperation.TWO_PHASE_COMMIT
_CREATE_TOKENS, _DESCRIBE_TOKENS = AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS


class Need(NamedTuple):
    """One question of an API. ``note`` says when it is asked, or what else helps, or what stays hidden."""

    operation: AclOperation
    resource_type: ResourceType
    note: str = ""


#: APIs that every client may use: they are needed before a client is known.
FOR_EVERYBODY: dict[Api, str] = {
    Api.API_VERSIONS: "Every client may ask which APIs there are.",
    Api.SASL_HANDSHAKE: "Part of the login.",
    Api.SASL_AUTHENTICATE: "Part of the login.",
    Api.GET_TELEMETRY_SUBSCRIPTIONS: "Every client that has logged in may ask what it is to push, as in Kafka.",
    Api.PUSH_TELEMETRY: "Every client that has logged in may push its metrics, as in Kafka.",
    Api.RENEW_DELEGATION_TOKEN: "The owner and the renewers of a token may renew it. ACLs do not matter.",
    Api.EXPIRE_DELEGATION_TOKEN: "The owner and the renewers of a token may expire it. ACLs do not matter.",
}

NEEDS: dict[Api, tuple[Need, ...]] = {
    Api.PRODUCE: (
        Need(_WRITE, _TOPIC),
        Need(_WRITE, _TRANSACTIONAL_ID, "if a batch is transactional; the flag of the batch counts"),
    ),
    Api.FETCH: (
        Need(_READ, _TOPIC, "for consumers"),
        Need(_CLUSTER_ACTION, _CLUSTER, "for requests with a replica id, which only brokers send"),
    ),
    Api.LIST_OFFSETS: (Need(_DESCRIBE, _TOPIC),),
    Api.METADATA: (
        Need(_DESCRIBE, _TOPIC, "other topics are left out of the list of all topics; the name of a topic that was "
             "asked for by its id stays hidden, and the id of a topic that was asked for by its name"),
        Need(_CREATE, _CLUSTER, "or CREATE on the topic, if the topic does not exist and would be created"),
        Need(_CREATE, _TOPIC, "or CREATE on the cluster"),
        Need(_DESCRIBE, _CLUSTER, "for the operations that the client may do on the cluster"),
    ),
    Api.LEADER_AND_ISR: (Need(_CLUSTER_ACTION, _CLUSTER),),
    Api.STOP_REPLICA: (Need(_CLUSTER_ACTION, _CLUSTER),),
    Api.UPDATE_METADATA: (Need(_CLUSTER_ACTION, _CLUSTER),),
    Api.CONTROLLED_SHUTDOWN: (Need(_CLUSTER_ACTION, _CLUSTER),),
    Api.OFFSET_COMMIT: (Need(_READ, _GROUP), Need(_READ, _TOPIC)),
    Api.OFFSET_FETCH: (
        Need(_DESCRIBE, _GROUP),
        Need(_DESCRIBE, _TOPIC, "other topics are left out of the list of all offsets"),
    ),
    Api.FIND_COORDINATOR: (Need(_DESCRIBE, _GROUP), Need(_DESCRIBE, _TRANSACTIONAL_ID)),
    Api.JOIN_GROUP: (Need(_READ, _GROUP),),
    Api.HEARTBEAT: (Need(_READ, _GROUP),),
    Api.LEAVE_GROUP: (Need(_READ, _GROUP),),
    Api.SYNC_GROUP: (Need(_READ, _GROUP),),
    Api.DESCRIBE_GROUPS: (Need(_DESCRIBE, _GROUP),),
    Api.LIST_GROUPS: (
        Need(_DESCRIBE, _CLUSTER, "shows all groups"),
        Need(_DESCRIBE, _GROUP, "other groups are left out"),
    ),
    Api.CREATE_TOPICS: (
        Need(_CREATE, _CLUSTER, "or CREATE on the topic"),
        Need(_CREATE, _TOPIC, "or CREATE on the cluster"),
        Need(_DESCRIBE_CONFIGS, _TOPIC, "for the settings and the number of partitions in the answer"),
    ),
    Api.DELETE_TOPICS: (
        Need(_DELETE, _CLUSTER, "or DELETE on the topic"),
        Need(_DELETE, _TOPIC),
        Need(_DESCRIBE, _TOPIC, "without it the name of a topic that was asked for by its id stays hidden"),
    ),
    Api.DELETE_RECORDS: (Need(_DELETE, _TOPIC),),
    Api.INIT_PRODUCER_ID: (
        Need(_WRITE, _TRANSACTIONAL_ID, "with a transactional id"),
        Need(_TWO_PHASE_COMMIT, _TRANSACTIONAL_ID, "if the client asks for two-phase commit"),
        Need(_IDEMPOTENT_WRITE, _CLUSTER, "without a transactional id; or WRITE on at least one topic"),
        Need(_WRITE, _TOPIC, "on any topic, instead of IDEMPOTENT_WRITE"),
    ),
    Api.OFFSET_FOR_LEADER_EPOCH: (Need(_CLUSTER_ACTION, _CLUSTER, "or DESCRIBE on the topic"), Need(_DESCRIBE, _TOPIC)),
    Api.ADD_PARTITIONS_TO_TXN: (
        Need(_WRITE, _TRANSACTIONAL_ID, "up to v3"),
        Need(_WRITE, _TOPIC, "up to v3"),
        Need(_CLUSTER_ACTION, _CLUSTER, "from v4 on: only brokers send it"),
    ),
    Api.ADD_OFFSETS_TO_TXN: (Need(_WRITE, _TRANSACTIONAL_ID), Need(_READ, _GROUP)),
    Api.END_TXN: (Need(_WRITE, _TRANSACTIONAL_ID),),
    Api.WRITE_TXN_MARKERS: (Need(_ALTER, _CLUSTER, "or CLUSTER_ACTION"), Need(_CLUSTER_ACTION, _CLUSTER)),
    Api.TXN_OFFSET_COMMIT: (Need(_WRITE, _TRANSACTIONAL_ID), Need(_READ, _GROUP), Need(_READ, _TOPIC)),
    Api.DESCRIBE_ACLS: (Need(_DESCRIBE, _CLUSTER),),
    Api.CREATE_ACLS: (Need(_ALTER, _CLUSTER),),
    Api.DELETE_ACLS: (Need(_ALTER, _CLUSTER),),
    Api.DESCRIBE_CONFIGS: (
        Need(_DESCRIBE_CONFIGS, _TOPIC, "for the settings of topics"),
        Need(_DESCRIBE_CONFIGS, _GROUP, "for the settings of groups"),
        Need(_DESCRIBE_CONFIGS, _CLUSTER, "for the settings of brokers and of client metrics"),
    ),
    Api.ALTER_CONFIGS: (
        Need(_ALTER_CONFIGS, _TOPIC, "for the settings of topics"),
        Need(_ALTER_CONFIGS, _GROUP, "for the settings of groups"),
        Need(_ALTER_CONFIGS, _CLUSTER, "for the settings of brokers and of client metrics"),
    ),
    Api.ALTER_REPLICA_LOG_DIRS: (Need(_ALTER, _CLUSTER),),
    Api.DESCRIBE_LOG_DIRS: (Need(_DESCRIBE, _CLUSTER),),
    Api.CREATE_PARTITIONS: (Need(_ALTER, _TOPIC),),
    Api.CREATE_DELEGATION_TOKEN: (Need(_CREATE_TOKENS, _USER, "for a token of another user"),),
    Api.DESCRIBE_DELEGATION_TOKEN: (
        Need(_DESCRIBE, _TOKEN, "for tokens of other users; or DESCRIBE_TOKENS on the user"),
        Need(_DESCRIBE_TOKENS, _USER, "for tokens of other users; other tokens are left out"),
    ),
    Api.DELETE_GROUPS: (Need(_DELETE, _GROUP),),
    Api.ELECT_LEADERS: (Need(_ALTER, _CLUSTER),),
    Api.INCREMENTAL_ALTER_CONFIGS: (
        Need(_ALTER_CONFIGS, _TOPIC, "for the settings of topics"),
        Need(_ALTER_CONFIGS, _GROUP, "for the settings of groups"),
        Need(_ALTER_CONFIGS, _CLUSTER, "for the settings of brokers and of client metrics"),
    ),
    Api.ALTER_PARTITION_REASSIGNMENTS: (Need(_ALTER, _CLUSTER),),
    Api.LIST_PARTITION_REASSIGNMENTS: (Need(_DESCRIBE, _CLUSTER),),
    Api.OFFSET_DELETE: (Need(_DELETE, _GROUP), Need(_READ, _TOPIC)),
    Api.DESCRIBE_CLIENT_QUOTAS: (Need(_DESCRIBE_CONFIGS, _CLUSTER),),
    Api.ALTER_CLIENT_QUOTAS: (Need(_ALTER_CONFIGS, _CLUSTER),),
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: (Need(_DESCRIBE, _CLUSTER),),
    Api.ALTER_USER_SCRAM_CREDENTIALS: (Need(_ALTER, _CLUSTER),),
    Api.UPDATE_FEATURES: (Need(_ALTER, _CLUSTER),),
    Api.DESCRIBE_CLUSTER: (
        Need(_DESCRIBE, _CLUSTER, "for the operations that the client may do on the cluster; every client sees the "
             "brokers"),
    ),
    Api.DESCRIBE_PRODUCERS: (Need(_READ, _TOPIC),),
    Api.DESCRIBE_TRANSACTIONS: (
        Need(_DESCRIBE, _TRANSACTIONAL_ID),
        Need(_DESCRIBE, _TOPIC, "other topics of the transaction are left out"),
    ),
    Api.LIST_TRANSACTIONS: (Need(_DESCRIBE, _TRANSACTIONAL_ID, "other transactions are left out"),),
    Api.CONSUMER_GROUP_HEARTBEAT: (
        Need(_READ, _GROUP),
        Need(_DESCRIBE, _TOPIC, "for the topics that the member names; an expression matches no other topics"),
    ),
    Api.CONSUMER_GROUP_DESCRIBE: (Need(_DESCRIBE, _GROUP), Need(_DESCRIBE, _TOPIC, "for all assigned topics")),
    Api.LIST_CONFIG_RESOURCES: (Need(_DESCRIBE_CONFIGS, _CLUSTER),),
    Api.DESCRIBE_TOPIC_PARTITIONS: (Need(_DESCRIBE, _TOPIC, "other topics are left out of the list of all topics"),),
}  # fmt: skip
