"""Reduces an answer to what authorization decides: codes, names, ids, and what is present.

Times, offsets of the broker's own topics, addresses, texts and ids of producers differ between two brokers; they are
left out. A field is shown if it is in ``SHOWN``, in ``Row.shows``, or if it holds a list or an entity. The name of a
cell's resource is shown by its short name; the id of its topic as ``id of a``; another id as ``zero`` or ``unknown``.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from typing import Any
from uuid import UUID

from headrace.protocol.errors import ErrorCode

from .cells import Cell, Op

SHOWN = frozenset(
    [
        "error_code",
        "partition_error_code",
        "topic_config_error_code",
        "name",
        "topic",
        "topic_name",
        "topic_id",
        "group_id",
        "key",
        "transactional_id",
        "user",
        "resource_name",
        "resource_type",
        "log_dir",
        "partition_index",
        "index",
        "partition",
        "partition_id",
        "topic_authorized_operations",
        "cluster_authorized_operations",
        "authorized_operations",
        "group_state",
        "group_type",
        "transaction_state",
        "num_partitions",
        "replication_factor",
        "committed_offset",
        "principal",
        "host",
        "operation",
        "permission_type",
        "pattern_type",
        "principal_type",
        "principal_name",
        "token_requester_principal_type",
        "token_requester_principal_name",
        "mechanism",
        "iterations",
        "records",
        "closed",
    ]
)
#: Lists whose elements differ between brokers: only whether there are any is shown.
PRESENCE = frozenset({"configs", "brokers", "records", "api_keys", "log_dir"})
#: Lists and entities that are never shown.
DROPPED = frozenset(
    [
        "node_endpoints",
        "current_leader",
        "diverging_epoch",
        "snapshot_id",
        "offline_replicas",
        "supported_features",
        "finalized_features",
        "eligible_leader_replicas",
        "last_known_elr",
        "aborted_transactions",
        "record_errors",
        "protocols",
        "synonyms",
        "next_cursor",
        "unknown_state_filters",
        "replica_nodes",
        "isr_nodes",
    ]
)
_CODES = frozenset({"error_code", "partition_error_code", "topic_config_error_code"})
_NOT_ASKED = -(2**31)


def normal_form(cell: Cell, answer: Any) -> Any:
    shown = _Shown(cell).value("answer", answer)
    return _counted(shown) if cell.row.counts else shown


class _Shown:
    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._shown = (SHOWN | cell.row.shows) - cell.row.hides
        self._short_ids = {each: short for short, each in cell.topic_ids.items()}

    def value(self, name: str, value: Any) -> Any:
        if name in PRESENCE and name not in self._cell.row.shows:
            return bool(value)
        if dataclasses.is_dataclass(value):
            return self._fields({each.name: getattr(value, each.name) for each in dataclasses.fields(value)})
        if isinstance(value, dict):
            return self._fields(value)
        if isinstance(value, list | tuple | set | frozenset):
            elements = [self.value(name, each) for each in value if self._belongs(each)]
            return sorted(elements, key=lambda each: json.dumps(each, sort_keys=True))
        return self._scalar(name, value)

    def _fields(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {
            name: self.value(name, value)
            for name, value in fields.items()
            if name not in DROPPED and name not in self._cell.row.hides and (name in self._shown or _is_nested(value))
        }

    def _belongs(self, element: Any) -> bool:
        if not self._cell.row.only_own:
            return True
        names = [
            getattr(element, name)
            for name in ("name", "topic_name", "group_id", "transactional_id", "resource_name")
            if isinstance(getattr(element, name, None), str)
        ]
        return not names or any(name.startswith(self._cell.prefix) for name in names)

    def _scalar(self, name: str, value: Any) -> Any:
        if name in _CODES:
            return ErrorCode(value).name
        if name.endswith("authorized_operations"):
            return _operations(value)
        if name == "topic_id":
            return self._id(value)
        if isinstance(value, str):
            return self._text(value)
        return value if value is None or isinstance(value, bool | int) else str(value)

    def _text(self, value: str) -> str:
        own = value.replace(self._cell.user, "SELF") if value == self._cell.user else value
        return own.replace(self._cell.principal, "User:SELF").removeprefix(self._cell.prefix)

    def _id(self, value: UUID | None) -> str:
        if value is None or not value.int:
            return "zero"
        return f"id of {self._short_ids[value]}" if value in self._short_ids else "unknown"


def _is_nested(value: Any) -> bool:
    return dataclasses.is_dataclass(value) or isinstance(value, list | tuple | dict | set | frozenset)


def _operations(bits: int) -> Any:
    if bits == _NOT_ASKED:
        return "not asked"
    return [op.name for op in Op if bits >> op & 1] + [f"bit {bit}" for bit in (0, 1) if bits >> bit & 1]


def _counted(shown: Any) -> Any:
    """Lists of entities as counts of their equal elements, without the names."""
    if isinstance(shown, dict):
        return {name: _counted(value) for name, value in shown.items()}
    if isinstance(shown, list) and shown and isinstance(shown[0], dict):
        without_names = [
            json.dumps({name: value for name, value in each.items() if name not in ("name", "topic")}, sort_keys=True)
            for each in shown
        ]
        return dict(sorted(Counter(without_names).items()))
    return shown
