"""Re-exports ``headrace.client.admin.types``, for programs that import the types from this older path."""

from headrace.client.admin.types import *  # noqa: F403
