import pytest
from compacted_log_harness import CompactedLogHarness


@pytest.fixture
def harnesses(tmp_path):
    made = []

    def make(*args, **kwargs):
        harness = CompactedLogHarness(tmp_path, *args, **kwargs)
        made.append(harness)
        return harness

    yield make
    for harness in made:
        harness.manager.close()


@pytest.fixture
def harness(harnesses):
    return harnesses()
