"""Copies the committed offsets of groups from the source to the target, so that the groups can go on there.

Only groups without members at the target are changed, and only forward: a group that has read on at the target is not
moved back.
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
    """Translates and commits the offsets of all groups that match.

    :param names: the names of the target's topics, by those of the source.
    :param translations: the offset translations, by the target's partitions.
    :return: the offsets that were committed, by group.
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
            # A partition is refused if the group has got members meanwhile. The next sync tries again.
            done = (await target.alter_group_offsets(group, moves)).ok
            committed[group] = {partition: moves[partition].offset for partition in sorted(done)}
    return committed


def translated(
    at_source: Mapping[TopicPartition, OffsetAndMetadata],
    at_target: Mapping[TopicPartition, OffsetAndMetadata],
    names: Mapping[str, str],
    translations: Mapping[TopicPartition, OffsetTranslation],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Returns the offsets to commit for one group."""
    moves: dict[TopicPartition, OffsetAndMetadata] = {}
    for (topic, index), place in at_source.items():
        partition = TopicPartition(names.get(topic, ""), index)
        translation = translations.get(partition)
        offset = None if translation is None else translation.translate(place.offset)
        if offset is None or (partition in at_target and at_target[partition].offset >= offset):
            continue
        moves[partition] = OffsetAndMetadata(offset, place.metadata)
    return moves
