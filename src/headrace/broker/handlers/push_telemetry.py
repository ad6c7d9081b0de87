"""PushTelemetry (key 72): the metrics of a client, which the metrics endpoint shows (KIP-714).

Speaks v0. The metrics are OTLP, compressed or not. A thread decodes them, one push after the other. Metrics that cannot
be decoded are INVALID_RECORD; metrics that are too large, before or after decompression, are TELEMETRY_TOO_LARGE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.network.request import Reply, Request
from headrace.broker.telemetry.otlp import MAX_DECOMPRESSED_BYTES, decode_push
from headrace.broker.telemetry.telemetry import PushedMetrics
from headrace.protocol.errors import KafkaError

if TYPE_CHECKING:
    from headrace.broker.services import ReadRecords
    from headrace.broker.telemetry.instances import ClientInstance
    from headrace.broker.telemetry.telemetry import Telemetry


async def handle(request: Request, telemetry: Telemetry, read_records: ReadRecords) -> Reply:
    body = request.body
    push = PushedMetrics(body.subscription_id, body.terminating, body.compression_type, bytes(body.metrics))
    try:
        instance = telemetry.check_push(body.client_instance_id, request.client_id, request.connection, push)
        if push.metrics:
            await _store(instance, push, telemetry, read_records)
        else:
            telemetry.accept(instance, [])
    except KafkaError as error:
        return {"error_code": error.code}
    return {}


async def _store(
    instance: ClientInstance, push: PushedMetrics, telemetry: Telemetry, read_records: ReadRecords
) -> None:
    limit_bytes = max(MAX_DECOMPRESSED_BYTES, telemetry.max_bytes)
    try:
        points = await read_records(
            0, decode_push, push.compression_type, push.metrics, limit_bytes, instance.demand.asks_for
        )
    except KafkaError as error:
        raise telemetry.reject(instance, error) from None
    telemetry.accept(instance, points)
