"""Headrace: an event log that speaks Kafka's own protocol.

Names are loaded when they are first used, so that importing one part does not pay for the others.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.client.admin import AsyncAdmin
    from headrace.client.consumer import AsyncConsumer
    from headrace.client.errors import HeadraceError
    from headrace.client.producer import AsyncProducer
    from headrace.client.sync_admin import Admin
    from headrace.client.sync_consumer import Consumer
    from headrace.client.sync_producer import Producer
    from headrace.client.types import OffsetAndMetadata, TopicPartition
    from headrace.embedded import Broker

__version__ = "0.1.0"
__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "Broker",
    "Consumer",
    "HeadraceError",
    "OffsetAndMetadata",
    "Producer",
    "TopicPartition",
    "__version__",
]

_HOMES = {
    "Admin": "headrace.client.sync_admin",
    "AsyncAdmin": "headrace.client.admin",
    "AsyncConsumer": "headrace.client.consumer",
    "AsyncProducer": "headrace.client.producer",
    "Broker": "headrace.embedded",
    "Consumer": "headrace.client.sync_consumer",
    "HeadraceError": "headrace.client.errors",
    "OffsetAndMetadata": "headrace.client.types",
    "Producer": "headrace.client.sync_producer",
    "TopicPartition": "headrace.client.types",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
