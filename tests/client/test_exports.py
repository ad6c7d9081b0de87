"""``import headrace`` is cheap, and everything that it offers is there."""

import subprocess
import sys

import pytest

import headrace


@pytest.mark.parametrize("name", headrace.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(headrace, name) is getattr(headrace, name)


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Produzer'"):
        _ = headrace.Produzer


def test_importing_the_package_imports_no_part_of_it() -> None:
    program = "import sys, headrace; print([name for name in sys.modules if name.startswith('headrace.')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_clients_need_neither_the_broker_nor_arrow() -> None:
    program = """
import sys
from headrace import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer
unwanted = ("headrace.broker", "headrace.log", "numba", "numpy", "pyarrow", "pandas")
print([name for name in unwanted if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
