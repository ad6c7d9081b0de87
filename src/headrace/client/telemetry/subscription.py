"""Checks the answer to GetTelemetrySubscriptions: which metrics a broker wants from this client, and how often."""

from __future__ import annotations

from collections.abc import Sequence
from logging import getLogger
from typing import Any, NamedTuple
from uuid import UUID

from headrace.protocol.records import Codec

logger = getLogger(__name__)

#: The interval if a broker names none, and the wait before a broker that does not support telemetry is asked again.
DEFAULT_PUSH_INTERVAL_MS = 300_000
_ALL = "*"


class Subscription(NamedTuple):
    """The metrics that a broker wants, how often, and in which form."""

    client_instance_id: UUID
    subscription_id: int
    push_interval_ms: int
    #: In the broker's order of preference. Codecs that this client does not know are left out.
    codecs: tuple[Codec, ...]
    #: Whether totals are sent as the difference to the last push.
    is_delta: bool
    #: The beginnings of the names of metrics. No prefix is no metric; an empty prefix is all metrics.
    prefixes: tuple[str, ...]

    @classmethod
    def of(cls, answer: Any) -> Subscription:
        """Reads an answer without an error.

        :raises ValueError: if the broker gives the client no id.
        """
        if answer.client_instance_id is None or not answer.client_instance_id.int:
            raise ValueError("the broker gave this client no instance id")
        interval_ms = round(answer.push_interval.total_seconds() * 1000)
        return cls(
            answer.client_instance_id,
            int(answer.subscription_id),
            interval_ms if interval_ms > 0 else DEFAULT_PUSH_INTERVAL_MS,
            tuple(_known_codecs(answer.accepted_compression_types)),
            bool(answer.delta_temporality),
            _prefixes(answer.requested_metrics),
        )

    def selects(self, name: str) -> bool:
        """Whether the broker wants the metric with this name."""
        return name.startswith(self.prefixes)

    @property
    def codec(self) -> Codec:
        return self.codecs[0] if self.codecs else Codec.none


def _known_codecs(numbers: Sequence[int]) -> list[Codec]:
    known = {codec.value for codec in Codec}
    return [Codec(number) for number in numbers if number in known]


def _prefixes(requested: Sequence[str]) -> tuple[str, ...]:
    return ("",) if tuple(requested) == (_ALL,) else tuple(requested)
