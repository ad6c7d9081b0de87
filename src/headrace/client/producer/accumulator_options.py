"""The options of a producer, in the form that the accumulator uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from headrace.protocol.records import Codec

if TYPE_CHECKING:
    from headrace.client.config import ProducerConfig

#: A batch that must wait for an answer grows to this many times ``batch.size``.
_MAX_GROWTH = 16


@dataclass(frozen=True, slots=True)
class AccumulatorOptions:
    """How large batches become, how long they wait, and how they are written."""

    batch_size_bytes: int = 16384
    #: How large a batch may grow while it waits for the answers to earlier batches; 0 means that it does not grow.
    max_batch_bytes: int = 0
    max_in_flight: int = 5
    linger_ms: int = 5
    delivery_timeout_ms: int = 120_000
    codec: Codec = Codec.none
    compression_level: int | None = None
    is_idempotent: bool = False
    is_transactional: bool = False
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1000

    @classmethod
    def of(cls, config: ProducerConfig) -> Self:
        codec = Codec[config.compression_type]
        levels = {
            Codec.gzip: config.compression_gzip_level if config.compression_gzip_level >= 0 else None,
            Codec.lz4: config.compression_lz4_level,
            Codec.zstd: config.compression_zstd_level,
        }
        # A batch reserves memory for its full size, so the size is at most buffer.memory.
        batch_size_bytes = min(config.batch_size, config.buffer_memory)
        return cls(
            batch_size_bytes=batch_size_bytes,
            max_batch_bytes=min(_MAX_GROWTH * batch_size_bytes, config.max_request_size),
            max_in_flight=config.max_in_flight_requests_per_connection,
            linger_ms=config.linger_ms,
            delivery_timeout_ms=config.delivery_timeout_ms,
            codec=codec,
            compression_level=levels.get(codec),
            is_idempotent=config.enable_idempotence,
            is_transactional=config.transactional_id is not None,
            retry_backoff_ms=config.retry_backoff_ms,
            retry_backoff_max_ms=config.retry_backoff_max_ms,
        )
