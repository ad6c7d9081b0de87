"""``import headrace`` is cheap, and everything that it offers is there."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import headrace

ROOT = Path(__file__).parents[2]


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


def documented_modules() -> list[str]:
    """The modules that the guides name; names of settings and files look alike, and are no modules."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    names = {name for page in pages for name in re.findall(r"headrace(?:\.[a-z_]+)+", page.read_text(encoding="utf-8"))}
    return sorted(name for name in names if (ROOT / "src" / name.replace(".", "/")).with_suffix(".py").exists())


def test_the_guides_name_modules() -> None:
    assert "headrace.client.errors" in documented_modules()


@pytest.mark.parametrize("name", documented_modules())
def test_a_star_import_brings_all_that_a_documented_module_defines(name: str) -> None:
    module = import_module(name)
    defined = {
        key
        for key, value in vars(module).items()
        if not key.startswith("_") and getattr(value, "__module__", "") == name
    }
    imported: dict[str, object] = {}
    exec(f"from {name} import *", imported)
    assert defined
    assert defined - imported.keys() == set()


def test_every_error_comes_with_a_star_import() -> None:
    imported: dict[str, object] = {}
    exec("from headrace.client.errors import *", imported)
    assert imported["HeadraceError"] is headrace.HeadraceError
    assert "ErrorCode" in imported
