"""Reads what the actions on records need: keys and values as a form has them, and headers as lines."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

from headrace.client.config import ProducerConfig
from headrace.client.producer.async_producer import AsyncProducer
from headrace.client.types import RecordMetadata
from headrace.console.cluster.reader import ClusterReader
from headrace.console.records.batches import HeaderPairs

_DELIVERY_MS = 30_000


def _from_json(text: str) -> bytes:
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {str(error)[:200]}") from None
    return text.encode()


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except ValueError as error:
        raise ValueError(f"not base64: {error}") from None


#: By name of the form: how a text becomes bytes. Each raises ValueError with what is wrong.
FORMS: dict[str, Callable[[str], bytes | None]] = {
    "text": str.encode,
    "json": _from_json,
    "base64": _from_base64,
    "null": lambda _: None,
}


def read_headers(text: str) -> HeaderPairs:
    """Reads lines ``NAME=VALUE``.

    :raises ValueError: if a line is something else.
    """
    found: list[tuple[str, bytes | None]] = []
    for line in filter(str.strip, text.splitlines()):
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"{line[:100]!r} is not NAME=VALUE")
        found.append((name.strip(), value.encode()))
    return tuple(found)


def wrong_headers(text: str) -> str:
    """Returns what is wrong with headers; empty if nothing is."""
    try:
        read_headers(text)
    except ValueError as error:
        return str(error)
    return ""


async def send(
    cluster: ClusterReader,
    topic: str,
    value: bytes | None,
    *,
    key: bytes | None,
    partition: int | None,
    headers: HeaderPairs,
    timestamp_ms: int | None = None,
) -> RecordMetadata:
    """Sends one record with the rights of the visitor.

    :raises HeadraceError: if it is not delivered.
    """
    options = {
        "client.id": "headrace-console",
        "enable.metrics.push": False,
        "delivery.timeout.ms": _DELIVERY_MS,
        "request.timeout.ms": _DELIVERY_MS // 2,
        "max.block.ms": _DELIVERY_MS // 2,
        "max.request.size": 64 * 1024 * 1024,
        **ProducerConfig.select(cluster.clients),
    }
    async with AsyncProducer(options) as producer:
        return await producer.send_and_wait(
            topic, value, key=key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
        )
