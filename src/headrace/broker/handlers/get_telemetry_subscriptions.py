"""GetTelemetrySubscriptions (key 71): which metrics a client pushes, how often, and in which form (KIP-714).

Speaks v0. A client without an instance id gets one. Without a matching subscription the list of metrics is empty, and
the client asks again after five minutes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.network.request import Reply, Request
from headrace.protocol.errors import KafkaError
from headrace.protocol.records import Codec

if TYPE_CHECKING:
    from headrace.broker.telemetry.telemetry import Telemetry

#: In Kafka's order: a client takes the first one that it has.
_COMPRESSION_TYPES = (Codec.zstd, Codec.lz4, Codec.gzip, Codec.snappy)


async def handle(request: Request, telemetry: Telemetry) -> Reply:
    try:
        instance = telemetry.subscribe(request.body.client_instance_id, request.client_id, request.connection)
    except KafkaError as error:
        return {
            "error_code": error.code,
            "client_instance_id": None,
            "subscription_id": 0,
            "accepted_compression_types": (),
            "push_interval": 0,
            "telemetry_max_bytes": 0,
            "delta_temporality": False,
            "requested_metrics": (),
        }
    return {
        "client_instance_id": instance.instance_id,
        "subscription_id": instance.subscription_id,
        "accepted_compression_types": _COMPRESSION_TYPES,
        "push_interval": instance.demand.interval_ms,
        "telemetry_max_bytes": telemetry.max_bytes,
        "delta_temporality": True,
        "requested_metrics": instance.demand.metrics,
    }
