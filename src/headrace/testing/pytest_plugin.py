"""Fixtures for other people's tests. Installing Headrace is enough: pytest finds them by the package's entry point.

Nothing of Headrace is imported until a test asks for a broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headrace import Broker


@pytest.fixture
def headrace_broker() -> Iterator[Broker]:
    """A broker of its own for the test, on a free port, with a folder that is gone afterwards."""
    from headrace import Broker

    with Broker() as broker:
        yield broker
