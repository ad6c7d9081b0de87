"""Names a snapshot of an exported view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Snapshot:
    """A commit of the table.

    :param number: Delta's version of the table.
    :param names: what the commit says: view, version, definition, offsets, updated_ms.
    """

    number: int
    names: Mapping[str, Any]

    def is_of(self, names: Mapping[str, Any]) -> bool:
        """Whether the snapshot has the rows of this state of the view: the answer over the same offsets."""
        return all(self.names.get(each) == names[each] for each in ("version", "definition", "offsets"))
