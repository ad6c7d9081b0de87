"""Re-exports ``headrace.client.admin.types`` under its older path."""

from headrace.client.admin.types import *  # noqa: F403
