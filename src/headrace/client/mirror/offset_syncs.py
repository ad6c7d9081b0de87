"""Holds the runs of all partitions of a mirror, and stores them as JSON records of a compacted topic at the target.

::

    key    {"topic": "orders", "partition": 0, "level": 3, "slot": 17}      the topic's name at the target
    value  {"topic_id": "...", "number": 280, "source": 70123, "target": 70405, "count": 250}

A level and a slot have one run at a time (``offset_translation.py``), so compaction keeps the same runs as this class.
Runs of a topic that was deleted at the target and created again have another topic id, and are ignored.

Runs are written in the same transaction as their records. So they also tell the position of the mirror if the broker
has deleted the committed offsets of the mirror's group, as it does with groups that are unused for a week.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from headrace.client.mirror.offset_translation import OffsetTranslation, Piece, Run, slot_of, thinned
from headrace.client.types import TopicPartition

#: The most pieces per transaction and partition. A compacted source may have a gap after each record.
_MOST_PIECES = 32


class OffsetSyncs:
    """The offset translations of all partitions of a mirror."""

    def __init__(self) -> None:
        #: The offset translations, by the target's partitions.
        self.translations: dict[TopicPartition, OffsetTranslation] = {}
        self._ids: dict[TopicPartition, str] = {}
        self._stored: dict[TopicPartition, list[tuple[str, Run]]] = {}

    def load(self, key: bytes, value: bytes) -> None:
        """Reads a stored record. The records come in the order of the topic. Records of others are ignored."""
        try:
            place, run = json.loads(key), json.loads(value)
            at = TopicPartition(place["topic"], place["partition"])
            found = Run(run["number"], run["source"], run["target"], run["count"])
            topic_id = run["topic_id"]
        except (ValueError, KeyError, TypeError):
            return
        self._stored.setdefault(at, []).append((topic_id, found))

    def start(self, partition: TopicPartition, topic_id: str) -> OffsetTranslation:
        """Starts the translation of a partition with its stored runs."""
        if partition not in self.translations or self._ids[partition] != topic_id:
            runs = [run for its_id, run in self._stored.pop(partition, ()) if its_id == topic_id]
            self.translations[partition], self._ids[partition] = OffsetTranslation(runs), topic_id
        return self.translations[partition]

    def add(self, partition: TopicPartition, topic_id: str, pieces: list[Piece]) -> Iterable[tuple[bytes, bytes]]:
        """Adds pieces. Returns the keys and values to store."""
        translation = self.translations[partition]
        stored: dict[int, Run] = {}
        for piece in thinned(pieces, _MOST_PIECES):
            run = translation.add(piece)
            stored[run.number] = run
        return [encode_run(partition, topic_id, run) for run in stored.values()]


def encode_run(partition: TopicPartition, topic_id: str, run: Run) -> tuple[bytes, bytes]:
    level, slot = slot_of(run.number)
    key = {"topic": partition.topic, "partition": partition.partition, "level": level, "slot": slot}
    value = {
        "topic_id": topic_id,
        "number": run.number,
        "source": run.source_first,
        "target": run.target_first,
        "count": run.length,
    }
    return _json(key), _json(value)


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
