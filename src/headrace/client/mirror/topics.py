"""Prepares the topics at the target: creates missing topics, and adds partitions to topics that have too few.

A new topic gets as many partitions as the source's topic, and the settings that were set for the source's topic.
Settings about the source's brokers (throttles, in-sync replicas) are not copied. Settings about timestamps are not
copied either, because a mirror keeps the timestamps of the records. The target decides the number of replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from headrace.client.admin.async_admin import AsyncAdmin
from headrace.client.admin.types import ConfigResource, NewTopic, TopicDescription
from headrace.client.errors import BrokerError, ErrorCode, TopicExists

_NOT_COPIED = frozenset(
    {
        "follower.replication.throttled.replicas", "leader.replication.throttled.replicas", "min.insync.replicas",
        "unclean.leader.election.enable", "remote.storage.enable", "message.timestamp.type",
        "message.timestamp.before.max.ms", "message.timestamp.after.max.ms", "message.timestamp.difference.max.ms",
    }
)  # fmt: skip
_SET_FOR_TOPIC = "DYNAMIC_TOPIC_CONFIG"


class MirroredTopic(NamedTuple):
    """A topic and its mirror."""

    source: str
    target: str
    #: The number of partitions at the source. The target has at least as many.
    partition_count: int
    #: "" if the cluster has no topic ids.
    source_id: str
    target_id: str

    @property
    def ids(self) -> str:
        """The ids of both topics. They change if either topic is deleted and created again."""
        return f"{self.source_id}+{self.target_id}"


async def prepare_topics(
    source: AsyncAdmin, target: AsyncAdmin, plan: Mapping[str, str], note: Callable[[str], None]
) -> list[MirroredTopic]:
    """Creates missing topics and adds missing partitions. Topics that are deleted meanwhile are left out."""
    wanted = (await source.describe_topics(plan)).ok if plan else {}
    existing = (await target.describe_topics(plan[name] for name in wanted)).ok if wanted else {}
    missing = [name for name in wanted if plan[name] not in existing]
    if missing:
        await _create(source, target, {name: (plan[name], len(wanted[name].partitions)) for name in missing}, note)
    narrow = {
        plan[name]: len(topic.partitions)
        for name, topic in wanted.items()
        if plan[name] in existing and len(existing[plan[name]].partitions) < len(topic.partitions)
    }
    if narrow:
        (await target.create_partitions(narrow)).all()
    if missing or narrow:
        existing = (await target.describe_topics(plan[name] for name in wanted)).all()
    return [
        MirroredTopic(name, plan[name], len(topic.partitions), _id_text(topic), _id_text(existing[plan[name]]))
        for name, topic in wanted.items()
    ]


def _id_text(topic: TopicDescription) -> str:
    return "" if topic.id is None else str(topic.id)


async def _create(
    source: AsyncAdmin, target: AsyncAdmin, missing: Mapping[str, tuple[str, int]], note: Callable[[str], None]
) -> None:
    settings = await source.describe_configs([ConfigResource("topic", name) for name in missing])
    made = []
    for name, (target_name, count) in missing.items():
        entries = settings.ok.get(ConfigResource("topic", name), {})
        configs = {
            entry.name: entry.value
            for entry in entries.values()
            if entry.source == _SET_FOR_TOPIC and entry.name not in _NOT_COPIED and entry.value is not None
        }
        made.append(NewTopic(target_name, count, configs=configs))
    results = await target.create_topics(made)
    plain = []
    for topic in made:
        error = results.errors.get(topic.name)
        if error is None or isinstance(error, TopicExists):
            continue
        if not (isinstance(error, BrokerError) and error.code is ErrorCode.invalid_config):
            raise error
        note(f"{topic.name} is created with the target's default settings, because it refuses the source's: {error}")
        plain.append(topic._replace(configs={}))
    if plain:
        (await target.create_topics(plain)).all()
