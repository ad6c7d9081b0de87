"""Makes and checks the topic of schemas before a registry uses it.

The topic has one partition, because the order of its records decides. Its ``cleanup.policy`` is ``compact``: with
``delete`` the broker would remove schemas after a week. A topic that is different is refused, and is not changed.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.client.admin.async_admin import AsyncAdmin
from headrace.client.errors import UnknownTopic
from headrace.properties import ConfigError

_REPLICAS = 3


async def prepare_topic(options: Mapping[str, object], topic: str) -> None:
    """Creates the topic if it does not exist.

    :raises ConfigError: if the topic cannot hold schemas.
    :raises HeadraceError: if the brokers do not answer, or do not allow it.
    """
    async with AsyncAdmin(config=options) as admin:
        try:
            await _check(admin, topic)
        except UnknownTopic:
            cluster = await admin.describe_cluster()
            replicas = min(_REPLICAS, len(cluster.brokers))
            await admin.create_topic(topic, 1, replicas, configs={"cleanup.policy": "compact"}, exist_ok=True)
            await _check(admin, topic)


async def _check(admin: AsyncAdmin, topic: str) -> None:
    found = await admin.describe_topic(topic)
    if len(found.partitions) != 1:
        raise ConfigError(
            f"the topic {topic} has {len(found.partitions)} partitions; a topic of schemas has one. Nothing was "
            "changed: choose another topic with --topic"
        )
    policy = (await admin.describe_config("topic", topic))["cleanup.policy"].value or ""
    if {part.strip() for part in policy.split(",")} != {"compact"}:
        raise ConfigError(
            f"the topic {topic} has cleanup.policy={policy}, with which brokers delete schemas. Nothing was changed: "
            f"run headrace configs --alter --entity-type topics --entity-name {topic} --add-config "
            "cleanup.policy=compact, or choose another topic with --topic"
        )
