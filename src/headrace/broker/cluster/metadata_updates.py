"""Applies UpdateMetadata requests to the metadata cache: the live brokers, the controller, the leaders of partitions.

A request names all live brokers, and only the partitions that have changed. The other partitions of a topic are taken
from the cache. A partition that no request has named yet, because it never had a leader, is shown without a leader. A
leader of -2 means that the topic is being deleted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from headrace.broker.metadata_cache import NO_LEADER, MetadataCache, Node, PartitionInfo, TopicInfo
from headrace.controller.decisions.broker_requests import LEADER_DURING_DELETE, UpdateMetadata
from headrace.controller.decisions.context import LiveBroker

if TYPE_CHECKING:
    from headrace.broker.cluster.controller_fence import ControllerFence

_NEVER_LED = PartitionInfo(NO_LEADER, -1, (), ())
#: The id of topics that a Kafka before 2.8 created.
_NO_ID = UUID(int=0)


class MetadataUpdates:
    def __init__(
        self,
        metadata: MetadataCache,
        fence: ControllerFence,
        inter_broker_listener: str,
        *,
        on_brokers_changed: Callable[[], object],
        on_topic_deleted: Callable[[str], object],
        on_updated: Callable[[list[str]], object],
    ) -> None:
        """
        :param on_brokers_changed: is called when other brokers are alive than before.
        :param on_topic_deleted: is called with each topic that is removed from the metadata.
        :param on_updated: is called after each update, with the topics that have changed or are deleted.
        """
        self._metadata = metadata
        self._fence = fence
        self._inter_broker_listener = inter_broker_listener
        self._on_brokers_changed = on_brokers_changed
        self._on_topic_deleted = on_topic_deleted
        self._on_updated = on_updated

    def apply(self, request: UpdateMetadata) -> None:
        """
        :raises StaleControllerEpoch: and nothing has changed.
        :raises StaleBrokerEpoch: and nothing has changed.
        """
        self._fence.check(request.broker_epoch, request.controller_epoch)
        metadata = self._metadata
        metadata.controller_id = request.controller_id
        if _set_nodes(metadata, request.live_brokers, self._inter_broker_listener):
            self._on_brokers_changed()
        changed, deleted = _by_topic(request)
        for name, partitions in changed.items():
            metadata.put(_merged(metadata.get(name), name, request.topic_ids.get(name) or _NO_ID, partitions))
        for name in deleted:
            if metadata.get(name) is not None:
                metadata.remove(name)
                self._on_topic_deleted(name)
        self._on_updated([*changed, *deleted])


def _set_nodes(metadata: MetadataCache, live: Iterable[LiveBroker], inter_broker: str) -> bool:
    by_listener: dict[str, dict[int, Node]] = defaultdict(dict)
    nodes: dict[int, Node] = {}
    for broker in live:
        for endpoint in broker.registration.endpoints:
            node = Node(broker.broker_id, endpoint.host, endpoint.port, broker.rack)
            by_listener[endpoint.listener][broker.broker_id] = node
        # A broker without this listener is alive as well, although no other broker can reach it.
        nodes[broker.broker_id] = by_listener[inter_broker].get(
            broker.broker_id, Node(broker.broker_id, "", -1, broker.rack)
        )
    return metadata.set_nodes(nodes, by_listener)


def _by_topic(request: UpdateMetadata) -> tuple[dict[str, dict[int, PartitionInfo]], set[str]]:
    """The partitions that have changed, by topic; and the topics that are being deleted."""
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
