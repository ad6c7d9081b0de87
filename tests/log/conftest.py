import pytest
from logbed import Bed


@pytest.fixture
def bed(tmp_path):
    made = Bed(tmp_path / "data")
    yield made
    if made.manager is not None:
        made.kill()
