"""The path of every znode that Headrace uses. ``znodes.py`` has the content of each znode.

Paths and content are those that Apache Kafka 3.x wrote in ZooKeeper mode. So tools for the ZooKeeper of a Kafka cluster
work with Headrace, too.

===========================================  =================================================================
/brokers/ids/N                               a live broker (ephemeral): :class:`BrokerRegistration`
/brokers/topics/T                            a topic: :class:`TopicAssignment`
/brokers/topics/T/partitions/P/state         leader and ISR: :class:`PartitionState`
/brokers/seqid                               its version is the source of generated broker ids
/controller                                  the active controller (ephemeral): :class:`ControllerRegistration`
/controller_epoch                            the number of controllers so far, in decimal digits
/cluster/id                                  :class:`ClusterId`
/config/TYPE/NAME                            :class:`EntityConfig`; NAME ``<default>`` is the default of that type
/config/changes/config_change_N              a config has changed (sequential): :class:`ConfigChange`
/admin/delete_topics/T                       a topic to delete; no content
/admin/reassign_partitions                   :class:`Reassignment`
/admin/preferred_replica_election            :class:`PartitionSet`
/isr_change_notification/isr_change_N        an ISR has changed (sequential): :class:`PartitionSet`
/log_dir_event_notification/log_dir_event_N  a disk has failed (sequential): :class:`LogDirFailure`
/latest_producer_id_block                    :class:`ProducerIdBlock`
/headrace/sasl_secret                        random bytes, the same for all brokers
/headrace/acls                               ACLs of names that no znode can have (``security/acls/znodes.py``)
===========================================  =================================================================
"""

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE_ID = "/brokers/seqid"
TOPICS = "/brokers/topics"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = f"{CONFIG_CHANGES}/config_change_"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION = "/admin/preferred_replica_election"
ISR_CHANGES = "/isr_change_notification"
ISR_CHANGE_PREFIX = f"{ISR_CHANGES}/isr_change_"
LOG_DIR_EVENTS = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX = f"{LOG_DIR_EVENTS}/log_dir_event_"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"

#: As the name of a broker, user or client: the default for all of them.
DEFAULT_ENTITY = "<default>"
CONFIG_TYPES = ("topics", "clients", "users", "brokers", "ips", "groups", "client-metrics")
GROUP_CONFIGS = "/config/groups"
USER_CONFIGS = "/config/users"
CLIENT_METRICS_CONFIGS = "/config/client-metrics"
#: A random secret of the cluster. Brokers make up salts for unknown users with it. Kafka has no such znode.
SASL_SECRET = "/headrace/sasl_secret"

#: The znodes that the first broker of a cluster creates, without content, parents first.
PERSISTENT_PATHS: tuple[str, ...] = (
    "/consumers",
    "/brokers",
    BROKER_IDS,
    TOPICS,
    BROKER_SEQUENCE_ID,
    "/config",
    CONFIG_CHANGES,
    *(f"/config/{entity_type}" for entity_type in CONFIG_TYPES),
    "/admin",
    DELETE_TOPICS,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    "/cluster",
)


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}"


def partition_state_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def config_path(entity_type: str, name: str) -> str:
    return f"/config/{entity_type}/{name}"


def topic_config_path(topic: str) -> str:
    return config_path("topics", topic)


def broker_config_path(broker_id: int | None) -> str:
    """The config path of one broker, or of all brokers (None)."""
    return config_path("brokers", DEFAULT_ENTITY if broker_id is None else str(broker_id))


def delete_topic_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"
