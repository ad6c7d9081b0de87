"""One runner per serving database, also after a crash of the runner before."""

import subprocess
import sys

import pytest

from headrace.pipeline.runner.lock import AlreadyRunning, is_taken, runner_lock

HOLD = """
import sys
from headrace.pipeline.runner.lock import runner_lock
with runner_lock(sys.argv[1]):
    print("has it", flush=True)
    sys.stdin.read()
"""


def test_a_second_one_is_told(database_url):
    assert not is_taken(database_url)
    with runner_lock(database_url) as lock:
        assert is_taken(database_url)
        lock.keep()
        with pytest.raises(AlreadyRunning, match="another 'headrace views run' is running"), runner_lock(database_url):
            raise AssertionError("never here")
        assert is_taken(database_url)
    assert not is_taken(database_url)


def test_kill_9_leaves_nothing_behind(database_url):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, database_url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "has it\n"
        assert is_taken(database_url)
        process.kill()
        process.wait()
    finally:
        process.communicate()
    with runner_lock(database_url):  # which waits a little, as PostgreSQL has to notice
        assert is_taken(database_url)


def test_the_other_one_is_named(sqlite_url):
    import os

    with (
        runner_lock(sqlite_url),
        pytest.raises(AlreadyRunning, match=f"process {os.getpid()} on "),
        runner_lock(sqlite_url),
    ):
        raise AssertionError("never here")


def test_a_connection_that_broke_is_made_again(postgresql_url, postgresql):
    import psycopg

    with runner_lock(postgresql_url) as lock:
        with psycopg.connect(postgresql.url, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'headrace runner'"
            )
        lock.keep()
        assert is_taken(postgresql_url)


def test_one_that_lost_its_lock_to_another_ends(postgresql_url, postgresql):
    import psycopg

    with runner_lock(postgresql_url) as lock:
        with psycopg.connect(postgresql.url, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'headrace runner'"
            )
        with runner_lock(postgresql_url), pytest.raises(AlreadyRunning):
            lock.keep()
