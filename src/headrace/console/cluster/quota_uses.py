"""Finds the limit that counts for each client with a quota, and the highest use per limit. No I/O.

The order is Kafka's: the limit of a user and a client id, then of a user, then of a client id; in each of them a name
comes before the default. The metrics of a client name a user and a client id, or the one that its limit has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.client.admin.quotas import DEFAULT, Name, QuotaEntity
from headrace.console.broker_metrics.measured import QuotaUse


@dataclass(frozen=True)
class LiveUse:
    """Holds the use of a limit at the last sample.

    :ivar clients: how many clients the limit counts for, of those that the brokers have seen in the last hour.
    :ivar value: that of the client and the broker where it is highest; None if the metrics do not tell it.
    :ivar throttle_ms: for how long the brokers muted the connections of a client, at most; None if they never did.
    :ivar busiest: the user and the client id where the value is highest.
    """

    clients: int
    value: float | None
    throttle_ms: float | None
    busiest: str


def live_uses(
    limits: Mapping[QuotaEntity, Mapping[str, float]], uses: Iterable[QuotaUse]
) -> dict[tuple[QuotaEntity, str], LiveUse]:
    """The use of each limit, by its entity and its key. A limit that counts for no client is left out."""
    found: dict[tuple[QuotaEntity, str], list[QuotaUse]] = {}
    for use in uses:
        entity = next((each for each in _candidates(use) if use.key in limits.get(each, {})), None)
        if entity is not None:
            found.setdefault((entity, use.key), []).append(use)
    return {at: _joined(of_limit) for at, of_limit in found.items()}


def _candidates(use: QuotaUse) -> list[QuotaEntity]:
    """The entities whose limit may count for a client, the most special first."""
    users: tuple[Name, ...] = (use.user, DEFAULT) if use.user else (None,)
    client_ids: tuple[Name, ...] = (use.client_id, DEFAULT) if use.client_id else (None,)
    return [QuotaEntity(user, client_id) for user in users for client_id in client_ids]


def _joined(uses: list[QuotaUse]) -> LiveUse:
    known = [use for use in uses if use.value is not None]
    busiest = max(known, key=lambda use: use.value or 0.0, default=None)
    return LiveUse(
        len(uses),
        None if busiest is None else busiest.value,
        max((use.throttle_ms for use in uses if use.throttle_ms is not None), default=None),
        "" if busiest is None else " ".join(filter(None, (busiest.user, busiest.client_id))),
    )
