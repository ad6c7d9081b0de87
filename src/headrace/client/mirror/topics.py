"""The target's topics: made like those of the source where they are missing, widened where they are narrower.

A topic that is made gets as many partitions, and the settings that were made for the source's topic by name; not those
that are about the brokers there (throttles, in-sync replicas), and not those about timestamps, as a mirror keeps the
records' own. The number of replicas is the target's business.
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
_MADE_FOR_IT = "DYNAMIC_TOPIC_CONFIG"


class MirroredTopic(NamedTuple):
    source: str
    target: str
    #: Of the source; the target has as many or more.
    partition_count: int
    #: "" where topics have no ids.
    source_id: str
    target_id: str

    @property
    def ids(self) -> str:
        """Others, if the topic of either side is another."""
        return f"{self.source_id}+{self.target_id}"


async def prepare_topics(
    source: AsyncAdmin, target: AsyncAdmin, plan: Mapping[str, str], note: Callable[[str], None]
) -> list[MirroredTopic]:
    """Makes and widens what has to be; topics that are deleted meanwhile are left out."""
    wanted = (await source.describe_topics(plan)).ok if plan else {}
    there = (await target.describe_topics(plan[name] for name in wanted)).ok if wanted else {}
    missing = [name for name in wanted if plan[name] not in there]
    if missing:
        await _create(source, target, {name: (plan[name], len(wanted[name].partitions)) for name in missing}, note)
    narrow = {
        plan[name]: len(topic.partitions)
        for name, topic in wanted.items()
        if plan[name] in there and len(there[plan[name]].partitions) < len(topic.partitions)
    }
    if narrow:
        (await target.create_partitions(narrow)).all()
    if missing or narrow:
        there = (await target.describe_topics(plan[name] for name in wanted)).all()
    return [
        MirroredTopic(name, plan[name], len(topic.partitions), _id_text(topic), _id_text(there[plan[name]]))
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
            if entry.source == _MADE_FOR_IT and entry.name not in _NOT_COPIED and entry.value is not None
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
        note(f"{topic.name} is made with the target's own settings, as it does not take the source's: {error}")
        plain.append(topic._replace(configs={}))
    if plain:
        (await target.create_topics(plain)).all()
