"""The rules of ``test_tidy.py``: each rule is a function from parsed files to a list of offenders.

An offender is one line of text: the file and the name. The lists of exceptions in ``test_tidy.py`` are keyed by it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """A file: its path within the repository, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @property
    def package(self) -> str:
        """The dotted name of the package that the file is in."""
        return ".".join(Path(self.path).parts[1:-1])


def load(root: Path, *folders: str, endings: Iterable[str] = (".py",)) -> list[Source]:
    """Reads the files of folders (or single files), as they are on disk."""
    starts = [root / folder for folder in folders]
    paths = [path for start in starts for path in ([start] if start.is_file() else sorted(start.rglob("*")))]
    return [
        Source(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))
        for path in paths
        if path.is_file() and (path.suffix in endings or path in starts) and "__pycache__" not in path.parts
    ]


# -- size and docstrings


def long_files(sources: Iterable[Source]) -> list[str]:
    return [source.path for source in sources if source.text.count("\n") > MAX_FILE_LINES]


def long_functions(sources: Iterable[Source]) -> list[str]:
    return [
        f"{source.path}: {node.name}"
        for source in sources
        for node in ast.walk(source.tree)
        if isinstance(node, Function) and (node.end_lineno or 0) - node.lineno + 1 > MAX_FUNCTION_LINES
    ]


def missing_docstrings(sources: Iterable[Source]) -> list[str]:
    """Modules without a docstring. A file without any statement needs none."""
    return [source.path for source in sources if source.tree.body and ast.get_docstring(source.tree) is None]


def unfinished_docstrings(sources: Iterable[Source]) -> list[str]:
    """Modules whose docstring does not begin with a capital letter or code, or whose first paragraph has no end."""
    found = []
    for source in sources:
        first = (ast.get_docstring(source.tree) or "A.").partition("\n\n")[0]
        if not (first[0].isupper() or first[0] in "`*") or first[-1] not in ".:)`":
            found.append(source.path)
    return found


#: A docstring that begins like this asks a question, and does not say what the module or the function does.
_QUESTION = re.compile(r"(What|Who|Whom|Whose|Which|Whether|How|Why|Where|When)\b")
#: Functions and classes may begin with "Whether" or "How": many return a bool or a number.
_QUESTION_OF_FUNCTION = re.compile(r"(What|Who|Where|When)\b")


def question_docstrings(sources: Iterable[Source]) -> list[str]:
    """Modules whose docstring begins with a question word instead of "Reads", "Holds" or "The leader's side"."""
    return [source.path for source in sources if _QUESTION.match(ast.get_docstring(source.tree) or "")]


def question_docstrings_of_functions(sources: Iterable[Source]) -> list[str]:
    """Functions and classes whose docstring begins with a question word."""
    return [
        f"{source.path}: {node.name}"
        for source in sources
        for node in ast.walk(source.tree)
        if isinstance(node, Function | ast.ClassDef) and _QUESTION_OF_FUNCTION.match(ast.get_docstring(node) or "")
    ]


# -- unused code


class _Uses(ast.NodeVisitor):
    """Counts the names that code reads: variables, attributes, and strings that are a (dotted) name.

    A name that is only stored, or is the name of an argument, is a different thing that has the same name.
    """

    _NAME = re.compile(r"[A-Za-z_][\w.]*(:\w+)?")

    def __init__(self) -> None:
        self.names: dict[str, int] = {}

    def _count(self, name: str) -> None:
        self.names[name] = self.names.get(name, 0) + 1

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._count(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Load):
            self._count(node.attr)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and self._NAME.fullmatch(node.value):
            self._count(re.split(r"[.:]", node.value)[-1])


def _uses_in(node: ast.AST) -> dict[str, int]:
    uses = _Uses()
    uses.visit(node)
    return uses.names


def _definitions(source: Source) -> Iterator[tuple[ast.AST, str, ast.ClassDef | None]]:
    """The public functions, classes and methods of a file: the node, its name, and the class of a method."""
    for node in source.tree.body:
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
            yield node, node.name, None
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, Function) and not inner.name.startswith("_"):
                    yield inner, f"{node.name}.{inner.name}", node


#: Bases that never call methods of their subclasses.
_PLAIN_BASES = {"ABC", "BaseException", "Enum", "Exception", "Flag", "Generic", "IntEnum", "NamedTuple", "Protocol"}


def _is_called_by_a_framework(method_of: ast.ClassDef, ours: set[str]) -> bool:
    """Whether a class has a base that is not ours: the base calls its methods, as asyncio does with a protocol's."""
    for base in method_of.bases:
        name = last_name(base)
        is_typing_protocol = name == "Protocol" and not isinstance(base, ast.Attribute)  # not asyncio.Protocol
        if name not in ours and name not in _PLAIN_BASES - {"Protocol"} and not is_typing_protocol:
            return True
    return False


def last_name(expression: ast.expr) -> str:
    """``c`` of ``a.b.c[d]``."""
    while isinstance(expression, ast.Subscript):
        expression = expression.value
    if isinstance(expression, ast.Attribute):
        return expression.attr
    return expression.id if isinstance(expression, ast.Name) else ""


def unused_definitions(
    sources: list[Source], users: Iterable[Source] = (), *, is_public: Callable[[str, str], bool] = lambda *_: False
) -> list[str]:
    """Public functions, classes and methods whose name nothing uses, except the definition itself.

    The rule compares names, not types: two methods of one name count as used if one of them is.

    :param users: further files whose uses count.
    :param is_public: whether a definition (path, name) is called by users or found by its name.
    """
    total: dict[str, int] = {}
    for source in (*sources, *users):
        for name, count in _uses_in(source.tree).items():
            total[name] = total.get(name, 0) + count
    ours = {node.name for source in sources for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef)}
    found = []
    for source in sources:
        for node, name, method_of in _definitions(source):
            last = name.rpartition(".")[2]
            own = _uses_in(node).get(last, 0)
            if total.get(last, 0) > own or is_public(source.path, name):
                continue
            if method_of is not None and _is_called_by_a_framework(method_of, ours):
                continue
            found.append(f"{source.path}: {name}")
    return found


def unused_dependencies(
    required: Iterable[str], sources: Iterable[Source], modules_of: Callable[[str], set[str]]
) -> list[str]:
    """Distributions of ``pyproject.toml`` of which no module is imported."""
    imported = {name for source in sources for name in _imported_modules(source)}
    return [name for name in required if not modules_of(name) & imported]


#: Functions that import the module that they are given.
_IMPORTING = ("import_module", "importorskip", "find_spec")


def _imported_modules(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
        elif isinstance(node, ast.Call) and last_name(node.func) in _IMPORTING and node.args:
            name = node.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield name.value.partition(".")[0]


# -- imports


def private_imports(sources: Iterable[Source]) -> list[str]:
    """Imports of a private name, or from a private module, of another package."""
    sources = list(sources)
    packages = {source.package for source in sources}
    found = []
    for source in sources:
        for parts in _imported_names(source):
            for index, part in enumerate(parts):
                owner = ".".join(parts[:index])
                is_own_module = owner.rpartition(".")[0] == source.package and owner not in packages
                if _is_private(part) and owner != source.package and not is_own_module:
                    found.append(f"{source.path}: {part}")
    return found


def _imported_names(source: Source) -> Iterator[list[str]]:
    """The parts of every dotted name of ours that a file imports, also of relative ones."""
    for node in ast.walk(source.tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = source.package.split(".") if node.level else []
            base = [*above[: len(above) - node.level + 1], *filter(None, [node.module])]
            names = [".".join([*base, alias.name]) for alias in node.names]
        yield from (name.split(".") for name in names if name.startswith("headrace."))


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


# -- tests


def sleeps(sources: Iterable[Source]) -> list[str]:
    """Functions that wait for a fixed time: by ``sleep``, or by ``wait`` whose result nobody reads.

    A ``wait`` counts if it has a timeout below a second, or waits for an event that nobody else can set.

    ``asyncio.sleep(0)`` does not wait: it lets the event loop run. A loop that polls a condition does not wait for a
    fixed time either: it ends as soon as the condition holds.
    """
    found = []
    for source in sources:
        sleep = _names_of_sleep(source.tree)
        for name, nodes in _scopes(source.tree):
            if any(_is_sleep(each, sleep) for node in nodes for each in _outside_of_polls(node)):
                found.append(f"{source.path}: {name}")
    return found


def _scopes(tree: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[tuple[str, list[ast.stmt]]]:
    """The outermost functions and the methods of a file, private ones too, and the statements outside of them."""
    rest = []
    for node in tree.body:
        if isinstance(node, Function):
            yield prefix + node.name, [node]
        elif isinstance(node, ast.ClassDef):
            yield from _scopes(node, f"{prefix}{node.name}.")
        else:
            rest.append(node)
    yield f"{prefix}<body>", rest


def _outside_of_polls(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that are not in a loop whose test calls or compares something. The test of any other is a flag."""
    if isinstance(node, ast.While) and any(isinstance(each, ast.Call | ast.Compare) for each in ast.walk(node.test)):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _outside_of_polls(child)


def _names_of_sleep(tree: ast.Module) -> set[str]:
    aliases = [alias for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names]
    return {"sleep", *(alias.asname for alias in aliases if alias.name == "sleep" and alias.asname)}


def _is_sleep(node: ast.AST, names: set[str]) -> bool:
    if isinstance(node, ast.Call) and last_name(node.func) in names:
        return not (node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0)
    call = node.value if isinstance(node, ast.Expr) else None
    if isinstance(call, ast.Await):
        call = call.value
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr != "wait":
        return False
    times = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "timeout")]
    is_short = any(
        isinstance(time, ast.Constant) and isinstance(time.value, float) and time.value < 1 for time in times
    )
    return is_short or (bool(times) and isinstance(call.func.value, ast.Call))


_OTHER_FILE = re.compile(r"(bed|world|scene|bench)s?$")
_OTHER_CLASS = re.compile(r"(Bed|World|Scene|Bench)s?$")


def misnamed_harnesses(sources: Iterable[Source]) -> list[str]:
    """Files and classes that are called bed, world, scene or bench: the one word for helpers of tests is harness."""
    found = [source.path for source in sources if _OTHER_FILE.search(Path(source.path).stem)]
    for source in sources:
        classes = [node.name for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef)]
        found += [f"{source.path}: {name}" for name in classes if _OTHER_CLASS.search(name)]
    return found


# -- prose

_TIMES = "second|minute|hour|day"
_COUNTED = (
    "class|connection|copy|entry|file|line|list|loop|module|process|queue|request|session|table|thread|timer"
    "|transaction"
)
_OWNERS = (
    "API|batch|broker|client|command|core|database|folder|key|partition|process|record|row|task|topic|version|view"
)
_RATES = re.compile(
    rf"\b(bytes|records|rows|batches|messages|requests|connections|[KMG]i?B) an? ({_TIMES})\b(?! time)"
    rf"|\b(bytes|requests) an? ({_OWNERS})\b"
    rf"|\b(one|an?) ({_COUNTED}) an? ({_OWNERS})\b"
    rf"|\b(one|an?) ({_COUNTED}|batch|message|record|row) an? ({_TIMES})\b(?! time)"
    rf"|\bone an? ({_OWNERS})\b"
    rf"|\b(once|twice|times|\d+( \w+)?) an? ({_TIMES})\b(?! time)"
    r"|(?<![A-Za-z])[A-Z]+S_AN?_[A-Z]+\b"
    rf"|(?<![A-Za-z_])an?_({_TIMES})\b|(?<![A-Za-z])AN?_({_TIMES.upper()})\b"
)


def wrong_rates(sources: Iterable[Source]) -> list[str]:
    """Lines with a rate or a ratio that does not say "per": bytes per second, one file per API."""
    return _lines(sources, lambda line: bool(_RATES.search(line)))


#: Words that cost a reader a second reading, because they replace a noun.
_ODD_WORDS = re.compile(
    r"\b(whoever|whosoever|whomever|is to be had|of its own accord|what it (was|is) then|by itself it|one that is"
    r"|those that are|in vain|by hand of|a second and a)\b|\b(?<!not )so many\b(?! (that|times))",
    re.IGNORECASE,
)


def odd_sentences(sources: Iterable[Source]) -> list[str]:
    """Lines with words that replace a noun: "whoever", "those that are", "goes on with so many"."""
    return _lines(sources, lambda line: bool(_ODD_WORDS.search(line)))


#: Documents that are not in this repository, and people's words for them.
_OUTSIDE = re.compile(
    r"\bthe seeds'|\bthe Kafka of the seeds\b|\bmission [A-Z]\b|\bcontracts\.md\b"
    r"|\btable of the issue\b|\bthe issue('s)? (asks|demands|lists|names|requires|says|wants)\b|\bthe issue:"
    r"|\b(as in|by|from|like|see) the (issue|seeds)\b",
    re.IGNORECASE,
)


def outside_references(sources: Iterable[Source]) -> list[str]:
    return _lines(sources, lambda line: bool(_OUTSIDE.search(line)))


def _lines(sources: Iterable[Source], is_bad: Callable[[str], bool]) -> list[str]:
    return [f"{source.path}: {line.strip()}" for source in sources for line in source.text.splitlines() if is_bad(line)]
