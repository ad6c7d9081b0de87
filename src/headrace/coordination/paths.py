"""Every znode that Headrace uses: its path, and its content. The same as Apache Kafka 3.x wrote in ZooKeeper mode, so
that tools and people that know a Kafka cluster's ZooKeeper know ours.

===========================================  =================================================================
/brokers/ids/N                               a live broker (ephemeral): :class:`BrokerRegistration`
/brokers/topics/T                            a topic: :class:`TopicAssignment`
/brokers/topics/T/partitions/P/state         leader and ISR: :class:`PartitionState`
/brokers/seqid                               its version gives out broker ids
/controller                                  who is controller (ephemeral): :class:`ControllerRegistration`
/controller_epoch                            how often that has changed, in decimal digits
/cluster/id                                  :class:`ClusterId`
/config/TYPE/NAME                            :class:`EntityConfig`; NAME ``<default>`` is for all of that type
/config/changes/config_change_N              says that one has changed (sequential): :class:`ConfigChange`
/admin/delete_topics/T                       a topic to delete; no content
/admin/reassign_partitions                   :class:`Reassignment`
/admin/preferred_replica_election            :class:`PartitionSet`
/isr_change_notification/isr_change_N        an ISR has changed (sequential): :class:`PartitionSet`
/log_dir_event_notification/log_dir_event_N  a disk has failed (sequential): :class:`LogDirFailure`
/latest_producer_id_block                    :class:`ProducerIdBlock`
===========================================  =================================================================

The classes are in ``znodes.py``, and can be imported from here.
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

#: As the name of a broker, user or client: all of them.
DEFAULT_ENTITY = "<default>"
CONFIG_TYPES = ("topics", "clients", "users", "brokers", "ips", "groups")
GROUP_CONFIGS = "/config/groups"

#: What exists from the start, without content, parents first.
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
    """Of one broker or, with None, of all."""
    return config_path("brokers", DEFAULT_ENTITY if broker_id is None else str(broker_id))


def delete_topic_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"
