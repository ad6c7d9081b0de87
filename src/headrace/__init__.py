"""Headrace: an event log that speaks Kafka's own protocol.

Names are loaded when they are first used, so that importing one part does not pay for the others.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.embedded import Broker

__version__ = "0.1.0"
__all__ = ["Broker", "__version__"]


def __getattr__(name: str) -> object:
    if name == "Broker":
        from headrace.embedded import Broker

        return Broker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
