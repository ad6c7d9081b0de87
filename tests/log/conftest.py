import pytest
from log_harness import LogHarness


@pytest.fixture
def harness(tmp_path):
    made = LogHarness(tmp_path / "data")
    yield made
    if made.manager is not None:
        made.kill()
