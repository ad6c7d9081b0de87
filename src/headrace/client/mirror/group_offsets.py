"""What groups have committed at the source, translated and committed at the target: they can go on there.

Only groups that nobody uses at the target, and only forward: who has read on there already is not moved back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from headrace.client.admin.async_admin import AsyncAdmin
from headrace.client.mirror.offset_translation import OffsetTranslation
from headrace.client.mirror.topic_names import OWN_PREFIX
from headrace.client.types import OffsetAndMetadata, TopicPartition

_UNUSED_STATES = ("Empty", "Dead")


async def sync_group_offsets(
    source: AsyncAdmin,
    target: AsyncAdmin,
    groups: re.Pattern[str],
    names: Mapping[str, str],
    translations: Mapping[TopicPartition, OffsetTranslation],
) -> dict[str, dict[TopicPartition, int]]:
    """
    :param names: of the target's topics, by those of the source.
    :param translations: by the target's partitions.
    :return: what was committed.
    """
    found = [group.group_id for group in await source.list_groups() if groups.fullmatch(group.group_id)]
    used = {group.group_id for group in await target.list_groups() if group.state not in _UNUSED_STATES}
    committed: dict[str, dict[TopicPartition, int]] = {}
    for group in found:
        if group in used or group.startswith(OWN_PREFIX):
            continue
        moves = translated(
            await source.list_group_offsets(group), await target.list_group_offsets(group), names, translations
        )
        if moves:
            # A partition that refuses, since the group has come into use meanwhile, is for another time.
            done = (await target.alter_group_offsets(group, moves)).ok
            committed[group] = {partition: moves[partition].offset for partition in sorted(done)}
    return committed


def translated(
    at_source: Mapping[TopicPartition, OffsetAndMetadata],
    at_target: Mapping[TopicPartition, OffsetAndMetadata],
    names: Mapping[str, str],
    translations: Mapping[TopicPartition, OffsetTranslation],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """What to commit for one group."""
    moves: dict[TopicPartition, OffsetAndMetadata] = {}
    for (topic, index), place in at_source.items():
        partition = TopicPartition(names.get(topic, ""), index)
        translation = translations.get(partition)
        offset = None if translation is None else translation.translate(place.offset)
        if offset is None or (partition in at_target and at_target[partition].offset >= offset):
            continue
        moves[partition] = OffsetAndMetadata(offset, place.metadata)
    return moves
