"""Turns the key, value and headers that a user passes for a record into bytes."""

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.protocol.record_body import Headers

#: The headers of a record as a user passes them: a dict, or pairs.
HeadersInput = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]]


def to_bytes(data: Any, serialize: Any, field: str) -> bytes | None:
    """Serializes a key or a value.

    :param field: "key" or "value".
    :raises TypeError: if the result is not bytes.
    """
    if serialize is not None and data is not None:
        data = serialize(data)
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise TypeError(
        f"the {field} of a record must be bytes or None, not {type(data).__name__}; pass {field}_serializer to the "
        "producer"
    )


def to_headers(headers: HeadersInput) -> Headers:
    """
    :raises TypeError: if a header is not a pair of a string and bytes (or None).
    """
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    found = tuple((name, content) for name, content in pairs)
    for name, content in found:
        if not isinstance(name, str) or not (content is None or isinstance(content, bytes)):
            raise TypeError(f"a header must be a string and bytes (or None), not ({name!r}, {content!r})")
    return found
