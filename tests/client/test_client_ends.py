"""Programs that end in other ways than by closing their clients: at their last line, by Ctrl-C, in a child process."""

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from headrace import Broker, Consumer, TopicPartition

PATIENCE_S = 60.0


@pytest.fixture
def servers() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


def started(program: str, servers: str) -> subprocess.Popen[str]:
    # A shell's background jobs ignore Ctrl-C, and so would the tests that they run.
    program = (
        f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\nSERVERS = {servers!r}\n{program}"
    )
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", program]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    with process:
        out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


def test_what_a_producer_has_buffered_goes_out_at_the_end(servers: str) -> None:
    program = """
from headrace import Producer

producer = Producer(bootstrap_servers=SERVERS, linger_ms=60_000)
producer.send("t", b"last")
"""
    assert finished(started(program, servers)) == (0, "", "")
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        assert [record.value for record in consumer.poll(10_000)] == [b"last"]


def test_a_consumer_that_is_not_closed_holds_nothing_up(servers: str) -> None:
    program = """
from headrace import Consumer

consumer = Consumer("t", bootstrap_servers=SERVERS, group_id="g")
consumer.poll(100)
"""
    assert finished(started(program, servers)) == (0, "", "")


def test_ctrl_c_ends_an_iteration_and_the_consumer_leaves_in_good_order(servers: str) -> None:
    program = """
from headrace import Consumer

with Consumer(bootstrap_servers=SERVERS, group_id="g") as consumer:
    consumer.subscribe(
        ["t"],
        on_assigned=lambda partitions: print("assigned", flush=True),
        on_revoked=lambda partitions: print("revoked", flush=True),
    )
    try:
        for record in consumer:
            pass
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""
    process = started(program, servers)
    assert process.stdout is not None
    assert process.stdout.readline() == "assigned\n"
    process.send_signal(signal.SIGINT)
    assert finished(process) == (0, "interrupted\nrevoked\n", "")


def test_a_child_process_makes_clients_of_its_own(servers: str) -> None:
    program = """
import os
from headrace import Admin, HeadraceError, Producer

producer, admin = Producer(bootstrap_servers=SERVERS), Admin(bootstrap_servers=SERVERS)
producer.send_and_wait("t", b"parent")
child = os.fork()
if child == 0:
    for refused in (lambda: producer.send("t", b"child"), admin.list_topics):
        try:
            refused()
        except HeadraceError as error:
            print(type(error).__name__, "before a fork" in str(error), flush=True)
    with Producer(bootstrap_servers=SERVERS) as own:
        print(own.send_and_wait("t", b"child").offset, flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(producer.send_and_wait("t", b"parent again").offset)
producer.close()
admin.close()
"""
    assert finished(started(program, servers)) == (0, "ClientClosed True\nClientClosed True\n1\n2\n", "")
