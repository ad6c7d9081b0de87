"""The house rules that a machine can check: size, docstrings, unused code, imports, sleeps, names and prose.

``tidy_rules.py`` has the rules. Each rule runs over the repository, and over a bad example, to show that it can fail.
``EXCEPTIONS`` lists what stays although a rule finds it, with the reason. An exception that no rule needs fails.
"""

from __future__ import annotations

import ast
import gc
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import tidy_rules
from tidy_rules import Source

#: One process parses the files once for all rules.
pytestmark = pytest.mark.xdist_group("tidy")
ROOT = Path(__file__).parents[1]
#: The folders and files whose prose is checked.
_FOLDERS = ("src", "tests", "docs", "bench", "script", "interop")
_FILES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "pyproject.toml", ".ci/run")
_PROSE_ENDINGS = (".py", ".md", ".sh", "")
#: Tests that wait for other processes by their nature, and tests whose clock is simulated.
_MAY_SLEEP = ("tests/scenarios/", "tests/interop/", "tests/simulator/")

_KERNEL = "one loop that Numba compiles"
#: By rule: what it finds, and why that stays.
EXCEPTIONS: dict[str, dict[str, str]] = {
    "long_functions": {
        "src/headrace/client/kernels/decode.py: decode_columns": _KERNEL,
        "src/headrace/client/kernels/encode.py: encode_batches": _KERNEL,
        "src/headrace/client/consumer/record_decoding.py: _by_python": "the hot loop of consumers without Numba",
    },
    "sleeps": {
        "tests/pipeline/common_cut/test_common_cut.py: takes": "stands for the work of a micro-batch, which takes time",
        "tests/tls_harness.py: InPieces.sendall": "the pauses make the pieces arrive one by one",
    },
    "unused_dependencies": {
        "grpcio-tools": "the registry runs its protoc in a process",
    },
    "unused_tools": {
        "attrs": "confluent-kafka's clients of a schema registry import it",
        "authlib": "confluent-kafka's clients of a schema registry import it",
        "cachetools": "confluent-kafka's clients of a schema registry import it",
        "certifi": "confluent-kafka's clients of a schema registry import it",
        "greenlet": "SQLAlchemy's asyncio needs it",
        "import-linter": "a command of script/test",
        "lz4": "a codec of the clients in tests/interop",
        "mypy": "a command of script/test",
        "pytest-randomly": "a plugin of pytest",
        "pytest-timeout": "a plugin of pytest",
        "pytest-xdist": "a plugin of pytest",
        "python-snappy": "a codec of the clients in tests/interop",
        "ruff": "a command of script/test",
        "zstandard": "a codec of the clients in tests/interop",
    },
    "unused_in_testing": {
        "src/headrace/testing/pytest_plugin.py: pytest_addoption": "pytest calls it",
        "src/headrace/testing/pytest_plugin.py: pytest_configure": "pytest calls it",
        "src/headrace/testing/pytest_plugin.py: pytest_runtest_setup": "pytest calls it",
    },
}


@pytest.fixture(scope="module", autouse=True)
def without_garbage_collection() -> Iterator[None]:
    """The syntax trees are millions of objects without garbage. They must not slow down the tests that follow."""
    gc.disable()
    yield
    for trees in (src, of_tests, prose, programs):
        trees.cache_clear()
    gc.enable()


@cache
def src() -> list[Source]:
    return tidy_rules.load(ROOT, "src")


@cache
def of_tests() -> list[Source]:
    return [source for source in tidy_rules.load(ROOT, "tests") if "tidy" not in source.path]


@cache
def prose() -> list[Source]:
    found = tidy_rules.load(ROOT, *_FOLDERS, *_FILES, endings=_PROSE_ENDINGS)
    return [source for source in found if "tidy" not in source.path and "/.cache/" not in source.path]


@cache
def programs() -> list[Source]:
    """Python that is not shipped and uses what is: for dependencies of development."""
    return tidy_rules.load(ROOT, "tests", "bench", "interop", "script")


def check(rule: str, found: list[str]) -> None:
    allowed = EXCEPTIONS.get(rule, {})
    offenders = [offender for offender in found if offender not in allowed]
    if offenders:
        pytest.fail(f"{rule}:\n  " + "\n  ".join(offenders), pytrace=False)
    if stale := allowed.keys() - set(found):
        pytest.fail(
            f"EXCEPTIONS of {rule} that the rule no longer finds:\n  " + "\n  ".join(sorted(stale)), pytrace=False
        )


def test_a_check_fails_for_what_is_found_and_for_an_exception_that_nothing_needs(monkeypatch):
    monkeypatch.setitem(EXCEPTIONS, "a_rule", {"a.py: f": "a reason"})
    check("a_rule", ["a.py: f"])
    check("another_rule", [])
    with pytest.raises(pytest.fail.Exception, match=r"^a_rule:\n  b\.py: g$"):
        check("a_rule", ["a.py: f", "b.py: g"])
    with pytest.raises(
        pytest.fail.Exception, match=r"^EXCEPTIONS of a_rule that the rule no longer finds:\n  a\.py: f$"
    ):
        check("a_rule", [])


def test_the_prose_that_is_checked_includes_the_files_at_the_top():
    assert set(_FILES) <= {source.path for source in prose()}


def bad(code: str, path: str = "src/headrace/log/bad.py") -> list[Source]:
    return [Source(path, code)]


# -- size and docstrings


def test_files_are_short():
    check("long_files", tidy_rules.long_files(src()))


def test_functions_are_short():
    check("long_functions", tidy_rules.long_functions(src()))


def test_every_module_says_what_it_is_for():
    check("missing_docstrings", tidy_rules.missing_docstrings(src()))
    check("unfinished_docstrings", tidy_rules.unfinished_docstrings(src()))
    check("question_docstrings", tidy_rules.question_docstrings([*src(), *programs()]))
    check("question_docstrings_of_functions", tidy_rules.question_docstrings_of_functions(src()))


def test_the_rules_of_size_and_docstrings_find_what_is_bad():
    body = "    pass\n" * 60
    assert tidy_rules.long_files(bad("x = 1\n" * 401)) == ["src/headrace/log/bad.py"]
    assert tidy_rules.long_files(bad("x = 1\n" * 400)) == []
    assert tidy_rules.long_functions(bad(f"class A:\n def f():\n{body}")) == ["src/headrace/log/bad.py: f"]
    assert tidy_rules.missing_docstrings(bad("x = 1")) == ["src/headrace/log/bad.py"]
    assert tidy_rules.missing_docstrings(bad("")) == []
    for docstring in ("reads files.", "Reads files\n\nMore."):
        assert tidy_rules.unfinished_docstrings(bad(f'"""{docstring}"""')) == ["src/headrace/log/bad.py"]
    for docstring in ("Reads files.", "``start``: starts a broker.\n\nmore"):
        assert tidy_rules.unfinished_docstrings(bad(f'"""{docstring}"""')) == []
    assert tidy_rules.question_docstrings(bad('"Which files are read."')) == ["src/headrace/log/bad.py"]
    assert tidy_rules.question_docstrings(bad('"Reads what is there."')) == []
    named = bad("def f():\n 'What is read.'\nclass G:\n 'Whether files are read.'")
    assert tidy_rules.question_docstrings_of_functions(named) == ["src/headrace/log/bad.py: f"]


# -- unused code


@cache
def public_classes() -> frozenset[str]:
    """The classes that ``headrace`` exports, and their bases: users call their methods."""
    (package,) = (source for source in src() if source.path == "src/headrace/__init__.py")
    exported = re.findall(r'^    "(\w+)": "headrace\.', package.text, re.MULTILINE)
    bases = {
        node.name: {tidy_rules.last_name(base) for base in node.bases}
        for source in src()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef)
    }
    found, waiting = set(), list(exported)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += bases.get(name, ())
    return frozenset(found)


def is_public(path: str, name: str) -> bool:
    """Whether users call it, or it is found by its name: methods of exported classes, handlers, subclasses by code."""
    return (
        path.startswith(("src/headrace/testing/", "src/headrace/views/"))
        or (name == "handle" and "/handlers/" in path)
        or name.partition(".")[0] in public_classes()
    )


def test_nothing_is_unused():
    check("unused_definitions", tidy_rules.unused_definitions(src(), is_public=is_public))


def test_nothing_in_the_testing_package_is_unused():
    """Its users are tests, benchmarks and the guide."""
    testing = [source for source in src() if source.path.startswith("src/headrace/testing/")]
    guide = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    found = tidy_rules.unused_definitions(testing, [*src(), *programs()])
    check("unused_in_testing", [each for each in found if each.rpartition(".")[2].split()[-1] not in guide])


def test_the_rule_of_unused_code_finds_what_is_bad():
    code = """
def used(): ...
def recursive(): recursive()
class A:
    def also_used(self): used()
    def unused(self): ...
    def registered(self): ...
class Framework(asyncio.Protocol):
    def data_received(self): ...
A().also_used()
TABLE = {"a": "headrace.log.registered"}
Framework
"""
    expected = ["src/headrace/log/bad.py: recursive", "src/headrace/log/bad.py: A.unused"]
    assert tidy_rules.unused_definitions(bad(code)) == expected
    assert tidy_rules.unused_definitions(bad(code), bad("recursive()\na.unused()")) == []
    assert tidy_rules.unused_definitions(bad(code), is_public=lambda _, name: name == "recursive") == expected[1:]
    for not_a_use in ("g(recursive=1)", "a.recursive = 1", "recursive = 1", "del a.recursive"):
        assert tidy_rules.unused_definitions(bad(code), bad(not_a_use)) == expected, not_a_use


@cache
def modules_of(distribution: str) -> frozenset[str]:
    return frozenset(
        module for module, owners in packages_distributions().items() if distribution in map(_plain, owners)
    )


def _plain(name: str) -> str:
    return re.split(r"[\[<>=;! ]", name)[0].replace("_", "-").lower()


def test_every_dependency_is_imported():
    """A distribution that is not installed here (Spark, on a Python that only tests the core) is passed over."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    shipped = [*project["dependencies"], *(name for extra in extras if extra != "dev" for name in extras[extra])]
    required = {_plain(name) for name in shipped if modules_of(_plain(name))}
    check("unused_dependencies", tidy_rules.unused_dependencies(sorted(required), src(), modules_of))
    required = {_plain(name) for name in extras["dev"] if modules_of(_plain(name))} - required
    check("unused_tools", tidy_rules.unused_dependencies(sorted(required), programs(), modules_of))


def test_the_rule_of_dependencies_finds_what_is_bad():
    modules = {"typer": {"typer"}, "pyyaml": {"yaml"}, "numba": {"numba"}}.__getitem__
    sources = bad("import os, yaml.nodes\nfrom importlib import import_module\nimport_module('numba.core')")
    assert tidy_rules.unused_dependencies(["typer", "pyyaml", "numba"], sources, modules) == ["typer"]


# -- imports


def test_private_names_stay_in_their_package():
    check("private_imports", tidy_rules.private_imports([*src(), *of_tests()]))


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("from headrace.groups.shard import _x", ["_x"]),
        ("from headrace.groups._a import b", ["_a"]),
        ("import headrace.groups._a", ["_a"]),
        ("import os, headrace.groups._a.b as c", ["_a"]),
        ("from headrace.groups import _a", ["_a"]),
        ("from ..groups import _x", ["_x"]),
        ("from ..groups._a import x, y", ["_a", "_a"]),
        ("from .. import _x", ["_x"]),
        ("from headrace.log.segment import _x", []),
        ("from .segment import _x", []),
        ("from . import _x", []),
        ("import headrace.log._x", []),
        ("from headrace import __version__", []),
        ("from asyncio import _x", []),
    ],
)
def test_the_rule_of_private_names_finds_what_is_bad(code, found):
    assert tidy_rules.private_imports(bad(code)) == [f"src/headrace/log/bad.py: {name}" for name in found]


def test_a_package_within_a_package_is_another_package():
    inside = Source("src/headrace/log/compaction/cleaner.py", "")
    code = "from headrace.log.compaction import _x"
    assert tidy_rules.private_imports([*bad(code), inside]) == ["src/headrace/log/bad.py: _x"]


# -- tests


def test_tests_do_not_sleep():
    check("sleeps", tidy_rules.sleeps(source for source in of_tests() if not source.path.startswith(_MAY_SLEEP)))


def test_harnesses_are_called_so():
    check("misnamed_harnesses", tidy_rules.misnamed_harnesses([*src(), *of_tests()]))


def test_the_rules_of_tests_find_what_is_bad():
    code = """
from time import sleep as nap
nap(1)
def test_a():
    async def wait(): await asyncio.sleep(0.1)
class B:
    time.sleep(1)
    def c(): sleep(x)
    def d(): asyncio.sleep(0)
    def e():
        while not is_so() or count < 3: sleep(0.1)
    def f():
        while True: sleep(0.1)
    class G:
        def h(): nap(x)
def i():
    while waiting: sleep(0.1)
def j():
    for _ in range(9): event.wait(0.2)
async def k(): await changed.wait(timeout=0.5)
def l(): Event().wait(x)
def m():
    assert event.wait(0.2)
    process.wait(20), clock.wait(1), pool.wait(x), event.wait()
"""
    found = ("test_a", "B.c", "B.f", "B.G.h", "B.<body>", "i", "j", "k", "l", "<body>")
    assert tidy_rules.sleeps(bad(code, "tests/a.py")) == [f"tests/a.py: {name}" for name in found]
    assert tidy_rules.sleeps(bad("import time\ntime.sleep(1)", "tests/a.py")) == ["tests/a.py: <body>"]
    named = bad("class GroupBed: ...\nclass World: ...\nclass Subscribed: ...", "tests/log/logbed.py")
    assert tidy_rules.misnamed_harnesses(named) == [
        "tests/log/logbed.py",
        *(f"tests/log/logbed.py: {n}" for n in ("GroupBed", "World")),
    ]


# -- prose


def test_rates_say_per():
    check("wrong_rates", tidy_rules.wrong_rates(prose()))


def test_sentences_repeat_the_noun():
    check("odd_sentences", tidy_rules.odd_sentences(prose()))


def test_nothing_refers_to_a_document_outside_of_the_repository():
    check("outside_references", tidy_rules.outside_references(prose()))


@pytest.mark.parametrize(
    "line",
    [
        "bytes a second and a broker",
        "one file an API",
        "limits a broker to so many MB a second",
        "there is one a process",
        "a request a second",
        "a transaction a task",
        "RECORDS_A_BATCH = 3",
        "produce.py [A_SECOND]",
        "def produce(a_second): ...",
        "20,000 clicks a second",
        "9,000 a second is not busy",
        "asks twice a second",
        "one timer an hour",
    ],
)
def test_the_rule_of_rates_finds_what_is_bad(line):
    assert tidy_rules.wrong_rates(bad(f"x\n{line}\n", "docs/a.md")) == [f"docs/a.md: {line}"]


@pytest.mark.parametrize(
    "line",
    [
        "bytes per second per broker",
        "After how many records a partition is flushed",
        "gives a broker a topic",
        "reads records a second time",
    ],
)
def test_the_rule_of_rates_lets_pass_what_is_good(line):
    assert tidy_rules.wrong_rates(bad(line)) == []


@pytest.mark.parametrize("line", ["Whoever comes later waits.", "keeps those that are new", "goes on with so many"])
def test_the_rule_of_odd_sentences_finds_what_is_bad(line):
    assert tidy_rules.odd_sentences(bad(line, "docs/a.md")) == [f"docs/a.md: {line}"]
    assert tidy_rules.odd_sentences(bad("There are so many that a table is needed.")) == []


@pytest.mark.parametrize(
    "line",
    [
        "as in the seeds' reactor",
        "mission B",
        "see contracts.md",
        "Prints the table of the issue.",
        "the issue says so",
        "as the issue demands",
        "the issue: it has no name",
        "see the seeds",
    ],
)
def test_the_rule_of_references_finds_what_is_bad(line):
    assert tidy_rules.outside_references(bad(line, "docs/a.md")) == [f"docs/a.md: {line}"]
