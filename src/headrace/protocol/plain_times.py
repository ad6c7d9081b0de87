"""Makes schemas whose 64-bit times are integers, from kio's schemas whose times are datetimes and timedeltas.

A datetime and a timedelta have no room for all values of 64 bits. Java's clients and brokers send such values about
delegation tokens: -1 for no time, and the largest number for a time that never comes. kio refuses them.
"""

from dataclasses import field, fields, make_dataclass
from functools import cache
from typing import Any

_TIMES = frozenset({"timedelta_i64", "datetime_i64"})


@cache
def with_plain_times(schema: Any) -> Any:
    """Returns a schema with the same fields. Times are integers in milliseconds."""
    members: list[tuple[str, Any, Any]] = []
    for each in fields(schema):
        is_time = each.metadata.get("kafka_type") in _TIMES
        metadata = {**each.metadata, "kafka_type": "int64"} if is_time else each.metadata
        members.append((each.name, int if is_time else each.type, field(metadata=metadata, default=each.default)))
    constants = {
        name: getattr(schema, name)
        for name in ("__type__", "__version__", "__flexible__", "__api_key__", "__header_schema__")
    }
    return make_dataclass(schema.__name__, members, namespace=constants, frozen=True, slots=True, kw_only=True)
