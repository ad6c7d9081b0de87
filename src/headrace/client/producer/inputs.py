"""What a user gives a producer, in the form that it works with: options, keys, values, headers."""

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.client.config import ProducerConfig
from headrace.client.producer.accumulator_types import AccumulatorOptions
from headrace.protocol.record_body import Headers
from headrace.protocol.records import Codec

GivenHeaders = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]]
#: A batch that has to wait anyway grows to so many times ``batch.size``.
_MOST_BATCHES = 16


def options_of(config: ProducerConfig) -> AccumulatorOptions:
    codec = Codec[config.compression_type]
    levels = {
        Codec.gzip: config.compression_gzip_level if config.compression_gzip_level >= 0 else None,
        Codec.lz4: config.compression_lz4_level,
        Codec.zstd: config.compression_zstd_level,
    }
    batch_size_bytes = min(config.batch_size, config.buffer_memory)  # a batch reserves its whole room
    return AccumulatorOptions(
        batch_size_bytes=batch_size_bytes,
        most_batch_bytes=min(_MOST_BATCHES * batch_size_bytes, config.max_request_size),
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


def bytes_of(data: Any, serialize: Any, what: str) -> bytes | None:
    if serialize is not None and data is not None:
        data = serialize(data)
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise TypeError(
        f"the {what} of a record is bytes or None, not {type(data).__name__}; give the producer a {what}_serializer"
    )


def headers_of(headers: GivenHeaders) -> Headers:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    found = tuple((name, content) for name, content in pairs)
    for name, content in found:
        if not isinstance(name, str) or not (content is None or isinstance(content, bytes)):
            raise TypeError(f"a header is a text and bytes (or None), not ({name!r}, {content!r})")
    return found
