import pytest
from coordinatorbed import CoordinatorBed


@pytest.fixture
def bed(tmp_path):
    made = CoordinatorBed(tmp_path / "data").load()
    yield made
    made.kill()
