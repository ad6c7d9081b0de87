"""Writes one line of JSON per change that was asked: time, visitor, action, fields, outcome.

::

    {"time":"2026-01-31T10:00:00.000Z","user":"alice","address":"127.0.0.1","action":"delete-topic",
     "fields":{"topic":"orders"},"outcome":"done"}

A line is written before the change (``"outcome":"begun"``) and after it, so that a change whose console was killed
leaves a line too. Secrets and masked fields are ``***``. With ``--data`` the lines are in ``audit.jsonl`` of the
folder; the file is renamed to ``audit.jsonl.1`` at 50 MB, and replaces the one before. Without a folder the lines go
to the log.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from logging import getLogger
from pathlib import Path

from headrace.runtime.clock import Clock

logger = getLogger(__name__)
HIDDEN = "***"
_MOST_BYTES = 50_000_000
_LONGEST_VALUE = 2_000


class AuditLog:
    """The audit log of one console."""

    def __init__(self, folder: Path | None, clock: Clock) -> None:
        self._path = None if folder is None else folder / "audit.jsonl"
        self._clock = clock

    def write(self, user: str, address: str, action: str, fields: Mapping[str, object], outcome: str) -> None:
        """
        :param fields: the values of the form, without secrets.
        :param outcome: ``begun``, ``done``, or ``failed: `` with the reason.
        """
        time = datetime.fromtimestamp(self._clock.wall_ms() / 1_000, UTC)
        line = json.dumps(
            {
                "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                "user": user,
                "address": address,
                "action": action,
                "fields": {name: _short(value) for name, value in fields.items()},
                "outcome": _short(outcome),
            },
            separators=(",", ":"),
        )
        if self._path is None:
            logger.info("audit %s", line)
            return
        self._append(self._path, f"{line}\n".encode())

    def _append(self, path: Path, line: bytes) -> None:
        """Appends by one write: two lines never mix. Only the owner may read the file."""
        if path.exists() and path.stat().st_size + len(line) > _MOST_BYTES:
            path.replace(path.with_name(f"{path.name}.1"))
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)


def _short(value: object) -> object:
    return f"{value[:_LONGEST_VALUE]}…" if isinstance(value, str) and len(value) > _LONGEST_VALUE else value
