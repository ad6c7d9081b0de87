"""Runs README.md block by block, as a new user would, with only what it says to install.

Here the environment is linked together without a package index, and the blocks that need Spark are left out. With
``HEADRACE_README_WHEEL=headrace-....whl`` pip makes the environment, and all blocks run: ``script/interop readme``.
"""

import os
import subprocess
from pathlib import Path

import pytest
from readme_blocks import ROOT, LinkedEnvironment, PipEnvironment, Shell, blocks_of, can_have_own_network, commands_of

BLOCKS = blocks_of((ROOT / "README.md").read_text(encoding="utf-8"))
WHEEL = os.environ.get("HEADRACE_README_WHEEL")
NEEDS_NETWORK = pytest.mark.skipif(
    not can_have_own_network(), reason="port 9092 needs a network namespace (unshare, ip)"
)


def of(heading, language=""):
    return [block for block in BLOCKS if (block.heading, block.language) == (heading, language)]


@pytest.fixture
def environment(tmp_path):
    """Nothing but Python."""
    return LinkedEnvironment(tmp_path / "venv") if WHEEL is None else PipEnvironment(tmp_path / "venv", Path(WHEEL))


@pytest.fixture
def shell(environment, tmp_path):
    folder = tmp_path / "home"
    folder.mkdir()
    made = Shell(environment, folder)
    yield made
    made.close()


def do(shell, heading, *, patience_s=60):
    """All dialogs below a heading, in their order. What prints ``ready`` goes on in the background."""
    for block in of(heading):
        for line, output in commands_of(block):
            if output.startswith("ready "):
                shell.serve(line, output)
            else:
                code, printed = shell.run(line, patience_s=patience_s)
                assert code == 0, f"{line}\n{printed}"
                assert output in printed


def test_every_block_is_run_here():
    assert [(block.heading, block.language) for block in BLOCKS] == [
        ("", ""),
        ("A broker", ""),
        ("Three brokers", ""),
        ("In your tests", ""),
        ("In your tests", "python"),
        ("In your tests", "python"),
        ("Clients", "python"),
        ("Views", ""),
    ]


def test_the_scripts_of_a_checkout_are_there():
    (block,) = of("")
    scripts = [line.split()[0] for line in block.text.splitlines()]
    assert scripts
    for script in scripts:
        assert os.access(ROOT / script, os.X_OK), script
        subprocess.run(["bash", "-n", ROOT / script], check=True, timeout=30)


@NEEDS_NETWORK
def test_one_broker_then_three_then_clients(shell):
    """In one folder, one section after the other."""
    do(shell, "A broker")
    (clients,) = of("Clients", "python")
    shell.write("clients.py", clients.text)
    shell.serve("python -u clients.py", "0 b'one'")
    shell.stop_servers()
    do(shell, "Three brokers")
    code, printed = shell.run("headrace topics --describe --topic orders")
    assert code == 0
    assert "PartitionCount: 6\tReplicationFactor: 3" in printed


@NEEDS_NETWORK
def test_in_your_tests(shell):
    do(shell, "In your tests")
    with_pytest, without = of("In your tests", "python")
    shell.write("test_orders.py", with_pytest.text)
    code, printed = shell.run("pytest -p no:cacheprovider test_orders.py")
    assert code == 0, printed
    assert "1 passed" in printed
    shell.write("embedded.py", without.text)
    assert shell.run("python embedded.py") == (0, "")


@NEEDS_NETWORK
def test_what_the_readme_does_not_say_to_install_is_not_there(shell):
    """Else the other tests could not fail."""
    do(shell, "A broker")
    for name in ("pytest", "confluent_kafka", "pyspark", "pyarrow", "numpy"):
        code, printed = shell.run(f"python -c 'import {name}'")
        assert (code, "ModuleNotFoundError" in printed) == (1, True), name


@NEEDS_NETWORK
def test_the_extra_for_spark_has_what_pyspark_asks_for_when_it_runs(environment, shell):
    """pyspark does not require them, and fails in the middle of a job without."""
    environment.install(["headrace[spark]"])
    code, printed = shell.run(
        "python -c 'from pyspark.sql.pandas import utils;"
        "utils.require_minimum_pandas_version(); utils.require_minimum_pyarrow_version()'"
    )
    assert code == 0, printed


@NEEDS_NETWORK
@pytest.mark.skipif(WHEEL is None, reason="takes minutes: script/interop readme")
@pytest.mark.timeout(600)
def test_views(shell):
    do(shell, "A broker")
    (block,) = of("Views")
    for line, _ in commands_of(block):
        if line.startswith("headrace views run"):
            shell.serve(line, "")
        elif line.startswith("headrace query"):
            shell.run(f"until {line.partition('#')[0]} | grep /cart; do sleep 1; done", patience_s=300)
            code, printed = shell.run(line)
            assert code == 0, printed
            assert "/checkout" in printed
        else:
            code, printed = shell.run(line)
            assert code == 0, f"{line}\n{printed}"
