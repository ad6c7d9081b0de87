"""Holds the fields that the actions on SCRAM users have."""

from __future__ import annotations

from headrace.console.fields import Field
from headrace.security.sasl.scram import MECHANISM_IDS

USER = Field("user", is_required=True, longest=249)
MECHANISM = Field("mechanism", kind="choice", choices=tuple(MECHANISM_IDS), default="SCRAM-SHA-512")
