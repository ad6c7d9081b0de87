"""Gives each test a registry without a broker."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from api_harness import Api


@pytest.fixture
def api() -> Iterator[Api]:
    found = Api()
    yield found
    found.registry.close()
