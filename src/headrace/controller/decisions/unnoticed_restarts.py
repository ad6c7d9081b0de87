"""Finds brokers that restarted, or lost their ZooKeeper session, while there was no controller.

When a broker registers, the controller removes the broker from the ISRs of its partitions, and so writes their
``state`` znodes again. A ``state`` znode that lists a broker in its ISR and is older than the registration of that
broker shows that no controller noticed the restart. Such a broker may have lost records: after a power failure,
committed records that were not flushed are gone. So its earlier ISR membership does not count. There are two cases:

- Another member of the ISR kept running. Then the restarted broker is treated as failed first, and as started after
  that.
- All members of the ISR restarted, for example because ZooKeeper was unavailable for a long time. Then no replica is
  better than the others. The partition keeps its leader and gets a new leader epoch, and clients never see the
  partition without a leader.
"""

from collections.abc import Mapping
from typing import NamedTuple

from headrace.controller.decisions.context import ControllerContext, LiveBroker
from headrace.controller.decisions.leader_elections import Leadership
from headrace.coordination.znodes import TopicPartition


class WrittenState(NamedTuple):
    leadership: Leadership
    #: The transaction that wrote the ``state`` znode.
    zxid: int


class UnnoticedRestarts(NamedTuple):
    #: Brokers to treat as failed and then as started. The context does not contain them now.
    brokers: list[LiveBroker]
    #: Partitions that keep their leader and need a new leader epoch.
    led_partitions: list[TopicPartition]


def remove_restarted_brokers(
    context: ControllerContext, states: Mapping[TopicPartition, WrittenState]
) -> UnnoticedRestarts:
    """Removes from the context the brokers that have to be treated as failed first."""
    epochs = {broker.broker_id: broker.epoch for broker in context.brokers}
    failed: set[int] = set()
    for state in states.values():
        alive = [broker_id for broker_id in state.leadership.isr if broker_id in epochs]
        restarted = [broker_id for broker_id in alive if state.zxid < epochs[broker_id]]
        if len(restarted) < len(alive):
            failed.update(restarted)
    brokers = [broker for broker in context.brokers if broker.broker_id in failed]
    for broker_id in failed:
        context.remove_broker(broker_id)
    led_partitions = [
        partition
        for partition, state in states.items()
        if context.has_leader_online(partition) and state.zxid < epochs[state.leadership.leader]
    ]
    return UnnoticedRestarts(brokers, led_partitions)
