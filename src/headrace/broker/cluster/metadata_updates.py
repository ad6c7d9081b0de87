"""UpdateMetadata into the metadata cache: which brokers live, who is controller, who leads what.

A request has all live brokers, and those partitions that have changed; a topic is put together from what was known of
it and from those. A partition that no controller has spoken of yet, because it never had a leader, is shown without
one. A leader of -2 says that the topic is being deleted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from headrace.broker.metadata_cache import NO_LEADER, MetadataCache, Node, PartitionInfo, TopicInfo
from headrace.controller.decisions.broker_requests import LEADER_DURING_DELETE, UpdateMetadata
from headrace.controller.decisions.context import LiveBroker

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

_NEVER_LED = PartitionInfo(NO_LEADER, -1, (), ())
#: Of a topic that a Kafka before 2.8 made.
_NO_ID = UUID(int=0)


def apply_update(broker: Broker, request: UpdateMetadata) -> None:
    """
    :raises StaleControllerEpoch: and nothing has changed.
    :raises StaleBrokerEpoch: and nothing has changed.
    """
    member, metadata = broker.cluster, broker.metadata
    assert member is not None, "nobody updates the metadata of a broker alone"
    member.check_broker_epoch(request.broker_epoch)
    member.check_controller(request.controller_epoch)
    metadata.controller_id = request.controller_id
    if _set_nodes(metadata, request.live_brokers, broker.config.listeners.inter_broker):
        member.replicas.brokers_changed()
    changed, deleted = _by_topic(request)
    for name, partitions in changed.items():
        metadata.put(_merged(metadata.get(name), name, request.topic_ids.get(name) or _NO_ID, partitions))
    for name in deleted:
        if metadata.get(name) is not None:
            metadata.remove(name)
            member.configs.forget(name)
            member.replicas.logs.forget(name)
            broker.groups.topic_deleted(name)
    member.metadata_updated([*changed, *deleted])


def _set_nodes(metadata: MetadataCache, live: Iterable[LiveBroker], inter_broker: str) -> bool:
    by_listener: dict[str, dict[int, Node]] = defaultdict(dict)
    nodes: dict[int, Node] = {}
    for broker in live:
        for endpoint in broker.registration.endpoints:
            node = Node(broker.broker_id, endpoint.host, endpoint.port, broker.rack)
            by_listener[endpoint.listener][broker.broker_id] = node
        # One that has no such listener lives as well, although no broker can reach it.
        nodes[broker.broker_id] = by_listener[inter_broker].get(
            broker.broker_id, Node(broker.broker_id, "", -1, broker.rack)
        )
    return metadata.set_nodes(nodes, by_listener)


def _by_topic(request: UpdateMetadata) -> tuple[dict[str, dict[int, PartitionInfo]], set[str]]:
    """What has changed, and which topics go."""
    changed: dict[str, dict[int, PartitionInfo]] = defaultdict(dict)
    deleted = set()
    for told in request.partitions:
        if told.leader == LEADER_DURING_DELETE:
            deleted.add(told.topic)
        else:
            changed[told.topic][told.partition] = PartitionInfo(
                told.leader, told.leadership.leader_epoch, told.replicas, told.leadership.isr, told.offline_replicas
            )
    return changed, deleted


def _merged(known: TopicInfo | None, name: str, topic_id: UUID, partitions: Mapping[int, PartitionInfo]) -> TopicInfo:
    before = known.partitions if known is not None and known.topic_id == topic_id else ()
    count = max(len(before), max(partitions) + 1)
    old = before + (_NEVER_LED,) * (count - len(before))
    return TopicInfo(name, topic_id, tuple(partitions.get(index, old[index]) for index in range(count)))
