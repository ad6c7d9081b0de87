"""Plans moves of partitions between brokers, follows them, and throttles them.

A plan moves as little as it can: a partition keeps its replicas on the wanted brokers, and gets the others on those
brokers that have the fewest replicas, in a rack without a replica if there is one. The first replica, the preferred
leader, is one on the broker that is the preferred leader of the fewest planned partitions.

A throttle is a setting of the brokers (bytes per second), and settings of the topics that name the throttled replicas.
The settings stay until somebody removes them.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from headrace.client.admin.async_admin import AsyncAdmin
from headrace.client.admin.types import ConfigChange, ConfigResource, LogDir, Reassignment, Results
from headrace.client.types import TopicPartition

_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
Plan = dict[TopicPartition, tuple[int, ...]]


def plan_moves(
    now: Mapping[TopicPartition, Sequence[int]],
    brokers: Mapping[int, str | None],
    count: int | None,
    held: Mapping[int, int],
) -> Plan:
    """Returns the new replicas of each partition.

    :param now: the present replicas.
    :param brokers: the brokers that partitions may be on, with their racks.
    :param count: how many replicas a partition is to have; None: as many as now.
    :param held: how many replicas each broker has.
    :raises ValueError: if there are not enough brokers.
    """
    load, leads = Counter(held), Counter[int]()
    plan: Plan = {}
    for at, replicas in sorted(now.items()):
        wanted = len(replicas) if count is None else count
        if wanted > len(brokers):
            raise ValueError(f"{at} is to have {wanted} replicas, but there are {len(brokers)} brokers to choose from")
        chosen = [broker_id for broker_id in replicas if broker_id in brokers][:wanted]
        while len(chosen) < wanted:
            racks = {brokers[broker_id] for broker_id in chosen}
            new = min(
                (broker_id for broker_id in brokers if broker_id not in chosen),
                key=lambda each, racks=racks: (brokers[each] in racks, load[each], each),  # type: ignore[misc]
            )
            chosen.append(new)
            load[new] += 1
        load.subtract(broker_id for broker_id in replicas if broker_id not in chosen)
        first = min(chosen, key=lambda each: (leads[each], chosen.index(each)))
        leads[first] += 1
        plan[at] = (first, *(each for each in chosen if each != first))
    return plan


def plan_text(plan: Mapping[TopicPartition, Sequence[int]]) -> str:
    """The plan as ``headrace reassign-partitions`` reads it."""
    partitions = [
        {"topic": at.topic, "partition": at.partition, "replicas": list(replicas)} for at, replicas in plan.items()
    ]
    return json.dumps({"version": 1, "partitions": partitions})


def bytes_copied(
    at: TopicPartition, moving: Reassignment, log_dirs: Results[int, dict[str, LogDir]]
) -> tuple[int, int] | None:
    """Returns the bytes that the new replicas have, and the bytes that they are to have; None if that is not known."""
    sizes = {
        broker_id: log_dir.replicas[at].size_bytes
        for broker_id, of_broker in log_dirs.ok.items()
        for log_dir in of_broker.values()
        if at in log_dir.replicas and not log_dir.replicas[at].is_future
    }
    old = [sizes[each] for each in moving.replicas if each not in moving.adding_replicas and each in sizes]
    if not old:
        return None
    whole = max(old)
    copied = [min(whole, sizes.get(each, 0)) for each in moving.adding_replicas]
    return sum(copied), whole * len(copied)


async def throttle(
    admin: AsyncAdmin,
    plan: Mapping[TopicPartition, Sequence[int]],
    now: Mapping[TopicPartition, Sequence[int]],
    bytes_per_second: int,
) -> None:
    """Limits the copying that a plan causes."""
    leaders: dict[str, list[str]] = defaultdict(list)
    followers: dict[str, list[str]] = defaultdict(list)
    brokers: set[int] = set()
    for at, replicas in plan.items():
        new = [each for each in replicas if each not in now[at]]
        if new:
            leaders[at.topic] += [f"{at.partition}:{each}" for each in now[at]]
            followers[at.topic] += [f"{at.partition}:{each}" for each in new]
            brokers.update(now[at], new)
    changes = {
        ConfigResource("topic", topic): [
            ConfigChange(name, ",".join(values))
            for name, values in zip(_REPLICAS, (leaders[topic], followers[topic]), strict=True)
        ]
        for topic in leaders
    }
    for broker_id in brokers:
        resource = ConfigResource("broker", str(broker_id))
        changes[resource] = [ConfigChange(name, str(bytes_per_second)) for name in _RATES]
    if changes:
        (await admin.alter_configs(changes)).all()


async def remove_throttles(admin: AsyncAdmin, topics: Iterable[str], brokers: Iterable[int]) -> None:
    """Removes the settings of throttles."""
    changes = {
        ConfigResource("topic", topic): [ConfigChange(name, None, "delete") for name in _REPLICAS] for topic in topics
    }
    for broker_id in brokers:
        changes[ConfigResource("broker", str(broker_id))] = [ConfigChange(name, None, "delete") for name in _RATES]
    if changes:
        (await admin.alter_configs(changes)).all()
