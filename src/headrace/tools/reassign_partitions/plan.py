"""Plans reassignments: files of ``headrace reassign-partitions``, proposals, throttles and progress. No I/O.

A reassignment is, for each partition, the brokers that are to hold it, the first being the preferred leader, and
perhaps the log dir on each (``"any"`` leaves that to the broker)::

    {"version": 1, "partitions": [{"topic": "a", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "/d"]}]}

A proposal goes round the brokers: leaders one after the other, over all topics, and followers behind them, shifted by
one more each time round, so that what one broker leads is followed on all others. With racks, brokers stand in an order
in which racks alternate, and a partition takes a second replica from a rack only when it has one from each.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from typing import NamedTuple

from headrace.client.admin.types import LogDir, Reassignment, TopicPartitionReplica
from headrace.client.types import TopicPartition
from headrace.tools.shared.commands import CommandError, UsageError, has_room
from headrace.tools.shared.partition_files import check_version, entries

ANY = "any"


class Target(NamedTuple):
    replicas: tuple[int, ...]
    log_dirs: tuple[str, ...] = ()

    @property
    def places(self) -> list[tuple[int, str]]:
        """Each broker id with its log dir."""
        return list(zip(self.replicas, self.log_dirs or (ANY,) * len(self.replicas), strict=True))


Targets = Mapping[TopicPartition, Target]


# -------------------------------------------------------------------------------------------------------------- files


def parse_reassignment(content: object, name: str) -> dict[TopicPartition, Target]:
    """Parses ``--reassignment-json-file``."""
    targets = {}
    for partition, item in entries(content, name, wanted={"replicas": list}):
        replicas, log_dirs = item["replicas"], item.get("log_dirs", [])
        if not replicas:
            raise UsageError("Partition replica list cannot be empty")
        if not all(type(broker_id) is int and has_room(broker_id, 32) for broker_id in replicas):
            raise UsageError(f"{name}: replicas of {partition} are {replicas}, but must be a list of broker ids")
        doubled = sorted({broker_id for broker_id in replicas if replicas.count(broker_id) > 1})
        if doubled:
            raise UsageError(
                "Partition replica lists may not contain duplicate entries: "
                f"{partition} contains multiple entries for {_ids(doubled)}"
            )
        if not isinstance(log_dirs, list) or not all(isinstance(log_dir, str) for log_dir in log_dirs):
            raise UsageError(f"{name}: log_dirs of {partition} are {log_dirs}, but must be a list of paths")
        if log_dirs and len(log_dirs) != len(replicas):
            raise UsageError(
                f"Size of replicas list {replicas} is different from size of log dirs list {log_dirs} "
                f"for partition {partition}"
            )
        targets[partition] = Target(tuple(replicas), tuple(log_dirs))
    if not targets:
        raise UsageError("Partition reassignment list cannot be empty")
    return targets


def parse_topics(content: object, name: str) -> list[str]:
    """Parses ``--topics-to-move-json-file``: ``{"version": 1, "topics": [{"topic": "a"}]}``."""
    if not isinstance(content, dict) or not isinstance(content.get("topics"), list):
        raise UsageError(f'{name}: the file must be an object with "topics"')
    check_version(content, name)
    items = content["topics"]
    if not all(isinstance(item, dict) and isinstance(item.get("topic"), str) for item in items):
        raise UsageError(f'{name}: each of the topics must be {{"topic": NAME}}')
    names = [item["topic"] for item in items]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise UsageError(f"List of topics to reassign contains duplicate entries: {','.join(doubled)}")
    return names


def as_json(targets: Targets) -> dict[str, object]:
    return {
        "version": 1,
        "partitions": [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "replicas": list(target.replicas),
                "log_dirs": [log_dir for _, log_dir in target.places],
            }
            for partition, target in sorted(targets.items())
        ],
    }


def as_text(targets: Targets) -> str:
    return json.dumps(as_json(targets), separators=(",", ":"))


def current_targets(
    replicas: Mapping[TopicPartition, Sequence[int]], log_dirs: Mapping[int, Mapping[str, LogDir]]
) -> dict[TopicPartition, Target]:
    """The present replicas of partitions."""
    paths = {
        TopicPartitionReplica(*partition, broker_id): path
        for broker_id, dirs in log_dirs.items()
        for path, log_dir in dirs.items()
        for partition, size in log_dir.replicas.items()
        if not size.is_future
    }
    return {
        partition: Target(
            tuple(brokers), tuple(paths.get(TopicPartitionReplica(*partition, broker_id), ANY) for broker_id in brokers)
        )
        for partition, brokers in replicas.items()
    }


# ---------------------------------------------------------------------------------------------------------- proposals


def propose(
    replicas: Mapping[TopicPartition, Sequence[int]], brokers: Mapping[int, str | None]
) -> dict[TopicPartition, Target]:
    """Proposes new replicas for partitions, as many as they have.

    :param brokers: the brokers with their racks; every rack is None if racks do not count.
    """
    ordered = _alternating(brokers)
    proposed = {}
    for number, (partition, now) in enumerate(sorted(replicas.items())):
        if len(now) > len(ordered):
            raise CommandError(f"Replication factor: {len(now)} larger than available brokers: {len(ordered)}.")
        proposed[partition] = Target(_pick(ordered, brokers, number, len(now)))
    return proposed


def _alternating(brokers: Mapping[int, str | None]) -> list[int]:
    """Orders the brokers so that their racks alternate."""
    racks: dict[str, list[int]] = defaultdict(list)
    for broker_id in sorted(brokers):
        racks[brokers[broker_id] or ""].append(broker_id)
    turns = zip_longest(*(racks[rack] for rack in sorted(racks)))
    return [broker_id for broker_id in chain.from_iterable(turns) if broker_id is not None]


def _pick(ordered: Sequence[int], racks: Mapping[int, str | None], number: int, count: int) -> tuple[int, ...]:
    leader, others = number % len(ordered), len(ordered) - 1
    shift = number // len(ordered)
    followers = [ordered[(leader + 1 + (shift + nth) % others) % len(ordered)] for nth in range(others)]
    chosen = [ordered[leader]]
    all_racks = set(racks.values())
    for broker_id in followers:  # First a broker from each rack that has no replica yet.
        used = {racks[each] for each in chosen}
        if len(chosen) < count and used != all_racks and racks[broker_id] not in used:
            chosen.append(broker_id)
    chosen += [broker_id for broker_id in followers if broker_id not in chosen]
    return tuple(chosen[:count])


# ---------------------------------------------------------------------------------------------------------- throttles


class Move(NamedTuple):
    """The broker ids from which and to which a partition is copied."""

    sources: tuple[int, ...]
    destinations: tuple[int, ...]


def moves(
    targets: Targets,
    replicas: Mapping[TopicPartition, Sequence[int]],
    ongoing: Mapping[TopicPartition, Reassignment],
) -> dict[TopicPartition, Move]:
    """The copies that reassignments cause: those in progress, replaced by those about to start."""
    found = {
        partition: Move(_without(each.replicas, each.adding_replicas), each.adding_replicas)
        for partition, each in ongoing.items()
    }
    for partition, target in targets.items():
        under_way = ongoing.get(partition)
        now = replicas[partition] if under_way is None else _without(under_way.replicas, under_way.adding_replicas)
        found[partition] = Move(tuple(now), _without(target.replicas, now))
    return found


def leader_throttles(moves: Mapping[TopicPartition, Move]) -> dict[str, str]:
    """For each topic, ``leader.replication.throttled.replicas``: ``partition:broker,...``."""
    return _throttled({partition: move.sources for partition, move in moves.items()})


def follower_throttles(moves: Mapping[TopicPartition, Move]) -> dict[str, str]:
    return _throttled({partition: move.destinations for partition, move in moves.items()})


def _throttled(replicas: Mapping[TopicPartition, Iterable[int]]) -> dict[str, str]:
    topics: dict[str, list[str]] = defaultdict(list)
    for (topic, index), broker_ids in sorted(replicas.items()):
        topics[topic] += [f"{index}:{broker_id}" for broker_id in sorted(broker_ids)]
    return {topic: ",".join(pairs) for topic, pairs in topics.items() if pairs}


def brokers_of(moves: Mapping[TopicPartition, Move]) -> list[int]:
    return sorted({broker_id for move in moves.values() for broker_id in (*move.sources, *move.destinations)})


def _without(broker_ids: Iterable[int], others: Iterable[int]) -> tuple[int, ...]:
    gone = set(others)
    return tuple(broker_id for broker_id in broker_ids if broker_id not in gone)


# ----------------------------------------------------------------------------------------------------------- progress


class PartitionState(NamedTuple):
    partition: TopicPartition
    replicas: tuple[int, ...]
    wanted: tuple[int, ...]
    is_ongoing: bool

    def __str__(self) -> str:
        if self.is_ongoing:
            return f"Reassignment of partition {self.partition} is still in progress."
        if self.replicas == self.wanted:
            return f"Reassignment of partition {self.partition} is completed."
        return (
            f"There is no active reassignment of partition {self.partition}, but replica set is {_ids(self.replicas)} "
            f"rather than {_ids(self.wanted)}."
        )


def partition_states(
    targets: Targets,
    replicas: Mapping[TopicPartition, Sequence[int]],
    ongoing: Mapping[TopicPartition, Reassignment],
) -> list[PartitionState]:
    return [
        PartitionState(partition, tuple(replicas.get(partition, ())), target.replicas, partition in ongoing)
        for partition, target in sorted(targets.items())
    ]


class ReplicaState(NamedTuple):
    """A replica that should be in a certain log dir: its present log dir, and the log dir of a copy in progress."""

    replica: TopicPartitionReplica
    wanted: str
    current: str | None
    future: str | None

    @property
    def is_ongoing(self) -> bool:
        return self.future is not None

    @property
    def is_done(self) -> bool:
        return self.future is None and self.current == self.wanted

    def __str__(self) -> str:
        topic, index, broker_id = self.replica
        name, where = f"{topic}-{index}-{broker_id}", f"Partition {topic}-{index} on broker {broker_id}"
        if self.current is None and self.future is None:
            return f"Partition {topic}-{index} cannot be found in any live log directory on broker {broker_id}."
        if self.future == self.wanted:
            return f"Reassignment of replica {name} is still in progress."
        if self.future is not None:
            return f"{where} is being moved to log dir {self.future} instead of {self.wanted}."
        if self.current != self.wanted:
            return f"{where} is not being moved from log dir {self.current} to {self.wanted}."
        return f"Reassignment of replica {name} completed successfully."


def wanted_log_dirs(targets: Targets) -> dict[TopicPartitionReplica, str]:
    return {
        TopicPartitionReplica(*partition, broker_id): log_dir
        for partition, target in sorted(targets.items())
        for broker_id, log_dir in target.places
        if log_dir != ANY
    }


def replica_states(targets: Targets, log_dirs: Mapping[int, Mapping[str, LogDir]]) -> Iterator[ReplicaState]:
    for replica, wanted in wanted_log_dirs(targets).items():
        current = future = None
        for path, log_dir in log_dirs.get(replica.broker_id, {}).items():
            size = log_dir.replicas.get(TopicPartition(replica.topic, replica.partition))
            if size is not None and size.is_future:
                future = path
            elif size is not None:
                current = path
        yield ReplicaState(replica, wanted, current, future)


def listing(ongoing: Mapping[TopicPartition, Reassignment]) -> Iterator[str]:
    """Returns the output of ``--list``."""
    for partition, each in sorted(ongoing.items()):
        adding = f" adding: {_ids(each.adding_replicas)}." if each.adding_replicas else ""
        removing = f" removing: {_ids(each.removing_replicas)}." if each.removing_replicas else ""
        yield f"{partition}: replicas: {_ids(each.replicas)}.{adding}{removing}"


def _ids(broker_ids: Iterable[int]) -> str:
    return ",".join(map(str, broker_ids))
