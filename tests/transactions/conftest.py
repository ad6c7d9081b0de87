"""Gives each test of transactions a coordinator on real logs."""

import pytest
from transaction_coordinator_harness import TransactionCoordinatorHarness


@pytest.fixture
def harness(tmp_path):
    made = TransactionCoordinatorHarness(tmp_path / "data").load()
    yield made
    made.kill()
