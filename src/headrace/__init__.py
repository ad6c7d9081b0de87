"""Headrace: an event log that uses Kafka's own protocol.

A name is imported when it is first used, so that a program that needs one part does not load the others.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.client.admin.async_admin import AsyncAdmin
    from headrace.client.admin.sync_admin import Admin
    from headrace.client.consumer.async_consumer import AsyncConsumer
    from headrace.client.consumer.sync_consumer import Consumer
    from headrace.client.errors import HeadraceError
    from headrace.client.producer.async_producer import AsyncProducer
    from headrace.client.producer.sync_producer import Producer
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

#: The module of each public name.
_MODULES = {
    "Admin": "headrace.client.admin.sync_admin",
    "AsyncAdmin": "headrace.client.admin.async_admin",
    "AsyncConsumer": "headrace.client.consumer.async_consumer",
    "AsyncProducer": "headrace.client.producer.async_producer",
    "Broker": "headrace.embedded",
    "Consumer": "headrace.client.consumer.sync_consumer",
    "HeadraceError": "headrace.client.errors",
    "OffsetAndMetadata": "headrace.client.types",
    "Producer": "headrace.client.producer.sync_producer",
    "TopicPartition": "headrace.client.types",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value
