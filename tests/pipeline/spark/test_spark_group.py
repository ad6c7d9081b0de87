"""All tests with Spark run in few workers, so that they share few sessions."""

import os
import re

import pytest


def test_whoever_asks_for_spark_goes_to_its_group(request: pytest.FixtureRequest, spark):
    if "PYTEST_XDIST_WORKER" not in os.environ:
        pytest.skip("only workers of pytest-xdist have groups: run it with -n 2 --dist loadgroup")
    assert re.search(r"@spark-[01]$", request.node.nodeid)
