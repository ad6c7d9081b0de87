"""Imports kio, which has the schemas of Kafka's protocol and decodes messages. No other module imports kio's readers.

kio imports Hypothesis if it is installed, to register strategies for its types. That takes 0.3 s, which a broker in a
test environment would pay at each start. So this module hides Hypothesis from kio, unless the process has imported it.

kio has no schemas for the requests between brokers on ZooKeeper (keys 4 to 7). ``cluster_messages.py`` has them.
"""

import sys
from collections.abc import Callable
from typing import Any

_ABSENT = object()
_hypothesis = sys.modules.get("hypothesis", _ABSENT)
if _hypothesis is _ABSENT:
    sys.modules["hypothesis"] = None  # type: ignore[assignment]  # makes "import hypothesis" raise ImportError

from kio._kio_native import entity_reader  # noqa: E402  kio.serial would import the encoders too
from kio.schema.errors import ErrorCode  # noqa: E402
from kio.schema.index import api_key_map, schema_name_map  # noqa: E402
from kio.static.constants import EntityType  # noqa: E402

if _hypothesis is _ABSENT:
    del sys.modules["hypothesis"]

__all__ = [
    "EntityType",
    "ErrorCode",
    "Reader",
    "UnknownTag",
    "decode_failures",
    "entity_reader",
    "load_request_schema",
    "load_response_schema",
]

#: Reads an entity at a position of a buffer; returns the entity, and how many bytes it took.
Reader = Callable[[memoryview | bytes, int], tuple[Any, int]]

#: A reader raises this for a tagged field that the schema does not have.
UnknownTag = KeyError


def decode_failures() -> tuple[type[Exception], ...]:
    """The exceptions that kio's readers raise for bytes that do not fit the schema."""
    from kio.serial.errors import SerialError

    return (SerialError, ValueError, OverflowError, MemoryError)


#: The versions of requests that Kafka 4 has dropped, so that kio has no schema for them; see ``cluster_messages.py``.
_OWN_VERSIONS = {4: range(5, 8), 5: range(3, 5), 6: range(7, 9), 7: range(2, 4)}


#: Messages about delegation tokens have times that kio's types have no room for; see ``plain_times.py``.
_PLAIN_TIMES = frozenset({38, 39, 40})


def versions_of(api_key: int) -> range:
    if api_key in _OWN_VERSIONS:
        return _OWN_VERSIONS[api_key]
    versions = schema_name_map[api_key_map[api_key]] if api_key in api_key_map else {}
    return range(min(versions), max(versions) + 1) if versions else range(0)


def load_request_schema(api_key: int, version: int) -> Any:
    """The class of a version's requests. The version must be one of :func:`versions_of`."""
    if api_key in _OWN_VERSIONS:
        return _own(api_key, version).request
    from kio.index import load_request_schema as load  # imports the headers of messages, which a start does not need

    return _with_plain_times(api_key, load(api_key, version))


def load_response_schema(api_key: int, version: int) -> Any:
    if api_key in _OWN_VERSIONS:
        return _own(api_key, version).response
    from kio.index import load_response_schema as load

    return _with_plain_times(api_key, load(api_key, version))


def _own(api_key: int, version: int) -> Any:
    from headrace.protocol.cluster_messages import schemas  # only the brokers of a cluster need it

    return schemas(api_key, version)


def _with_plain_times(api_key: int, schema: Any) -> Any:
    if api_key not in _PLAIN_TIMES:
        return schema
    from headrace.protocol.plain_times import with_plain_times

    return with_plain_times(schema)
