"""Converts names of client metrics to names that Prometheus allows.

Dots become underscores: ``org.apache.kafka.producer.record.send.total`` becomes
``org_apache_kafka_producer_record_send_total``, as OpenTelemetry's own exporter writes it. The name of a counter ends
in ``_total``, and no other name does. A name that does not begin with ``org.apache.kafka.`` gets a prefix, so that no
client can push a metric with the name of one of the broker's own.
"""

from __future__ import annotations

import re

_KAFKA = "org_apache_kafka_"
_PREFIX = "kafka_client_"
_NOT_ALLOWED = re.compile(r"[^a-zA-Z0-9_]")
_MAX_NAME, _MAX_VALUE = 200, 256


def metric_name(otlp_name: str) -> str:
    """Returns the name without a final ``_total``."""
    name = _NOT_ALLOWED.sub("_", otlp_name[:_MAX_NAME])
    while name.endswith("_total"):
        name = name.removesuffix("_total")
    return name if name.startswith(_KAFKA) else _PREFIX + name


def label_name(key: str) -> str:
    """Returns the name of a label. It begins with a letter: Prometheus reserves two underscores."""
    name = _NOT_ALLOWED.sub("_", key[:_MAX_NAME]).lstrip("_")
    return name if name and not name[0].isdigit() else f"label_{name}"


def label_value(value: str | bool | int | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)[:_MAX_VALUE]
