"""The labels that describe a client itself in its pushes, by the names of KIP-714. Empty labels are left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from headrace.client.config import ConsumerConfig, ProducerConfig


class _Identity(Protocol):
    @property
    def member_id(self) -> str: ...


class Member(Protocol):
    """A consumer's membership in its group."""

    def identity(self) -> _Identity: ...


def producer_labels(config: ProducerConfig) -> dict[str, str]:
    return _given({"transactional_id": config.transactional_id})


def consumer_labels(config: ConsumerConfig, member: Member | None) -> dict[str, str]:
    return _given(
        {
            "group_id": config.group_id,
            "group_instance_id": config.group_instance_id,
            "group_member_id": None if member is None else member.identity().member_id,
            "client_rack": config.client_rack,
        }
    )


def _given(labels: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in labels.items() if value}
