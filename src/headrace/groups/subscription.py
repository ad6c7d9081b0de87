"""Which topics a consumer has subscribed to, out of the metadata that it joins a classic group with.

::

    version int16, topic_count int32, topic_count × (length int16, name), ...

What follows (user data, owned partitions, generation, rack) differs by version and is the assignors' business.
"""

from collections.abc import Iterable
from struct import Struct
from struct import error as StructError  # noqa: N812

_HEAD = Struct(">hi")
_LENGTH = Struct(">h")


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all members; None if one cannot be read: then nobody knows what the group reads."""
    try:
        return frozenset(name for subscription in subscriptions for name in _topics(subscription))
    except (StructError, ValueError):
        return None


def _topics(subscription: bytes) -> list[str]:
    _, count = _HEAD.unpack_from(subscription)
    at = _HEAD.size
    names = []
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(subscription, at)
        at += _LENGTH.size
        if length < 0 or at + length > len(subscription):
            raise ValueError("a topic's name ends behind the subscription")
        names.append(subscription[at : at + length].decode())
        at += length
    return names
