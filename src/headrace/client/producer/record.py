"""A record as the producer handles it: the user's record, with key and value in bytes."""

from typing import NamedTuple

from headrace.protocol.record_body import Headers


class ProducerRecord(NamedTuple):
    """A record on its way to a batch."""

    topic: str
    #: None: the partitioner chooses.
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    #: The user's callback, or None.
    on_delivery: object
