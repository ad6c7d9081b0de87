"""Finds the default of a setting of a topic where the brokers' answer does not tell it.

An answer names the layers below a topic's own value. For settings that a broker has in several units, such as
``log.retention.hours``, it names only the layer of milliseconds, which nobody sets: the chain then ends at the topic.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.client.admin.types import ConfigEntry

_HOUR_MS = 3_600_000
#: By setting of a topic: the settings of a broker that give its default, with their milliseconds, the strongest first.
_UNITS: dict[str, tuple[tuple[str, int], ...]] = {
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", 60_000),
        ("log.retention.hours", _HOUR_MS),
    ),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
}
_OWN = "DYNAMIC_TOPIC_CONFIG"


def default_of(entry: ConfigEntry, broker: Mapping[str, ConfigEntry]) -> str | None:
    """The value that counts without the topic's own one; None if nobody tells it.

    :param broker: the settings of a broker.
    """
    if entry.source != _OWN:
        return entry.value
    for synonym in entry.synonyms:
        if synonym.source != _OWN:
            return synonym.value
    for name, milliseconds in _UNITS.get(entry.name, ()):
        found = broker.get(name)
        if found is not None and found.value:
            return str(max(-1, int(found.value) * milliseconds))
    return None
