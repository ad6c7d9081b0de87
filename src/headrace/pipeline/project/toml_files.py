"""Reads the TOML files of a project, so that every problem has its file and line.

``tomllib`` gives no positions. Only the lines of tables and keys are needed, and a scan of the lines finds them;
multi-line texts are skipped.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.client.errors import HeadraceError

_TABLE = re.compile(r"^\s*\[\[?\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""^\s*([A-Za-z0-9_\-."']+(?:\s*\.\s*[A-Za-z0-9_\-"']+)*)\s*=""")
_AT_LINE = re.compile(r"\s*\(at line (\d+), column \d+\)")
_TRIPLE = re.compile(r'"""|\'\'\'')


@dataclass(frozen=True)
class Problem:
    """A problem in a project, and its place. Lines and columns count from 1."""

    file: Path
    line: int | None
    message: str
    column: int | None = None

    def __str__(self) -> str:
        place = ":".join(str(each) for each in (self.file, self.line, self.column) if each is not None)
        return f"{place}: {self.message}"


class ProjectError(HeadraceError):
    """A project that cannot be used. ``problems`` has all problems that were found."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def did_you_mean(name: str, known: Collection[str]) -> str:
    """``: did you mean page?``, or the known names if they are few, or an empty text."""
    nearest = difflib.get_close_matches(name.lower(), {each.lower(): each for each in known}, n=1)
    if nearest:
        return f": did you mean {next(each for each in known if each.lower() == nearest[0])}?"
    return f": known names are {', '.join(sorted(known))}" if 0 < len(known) <= 20 else ""


def toml_problem(path: Path, error: tomllib.TOMLDecodeError) -> Problem:
    """The problem that a file is not TOML, with the line that ``tomllib`` names."""
    place = _AT_LINE.search(str(error))
    message = _AT_LINE.sub("", str(error))
    return Problem(path, int(place[1]) if place else None, f"the file is not valid TOML: {message}")


def lines_of(text: str) -> dict[tuple[str, ...], int]:
    """The line of each table and each key, by its path."""
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    inside_text = False
    for number, line in enumerate(text.splitlines(), start=1):
        quotes = len(_TRIPLE.findall(line))
        if not inside_text:
            if header := _TABLE.match(line):
                table = _path(header[1])
                found.setdefault(table, number)
            elif key := _KEY.match(line):
                found.setdefault((*table, *_path(key[1])), number)
        inside_text ^= quotes % 2 == 1
    return found


def _path(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def _flat(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


@dataclass
class TomlFile:
    """The content of a file, and the problems found in it so far.

    :param invalid_fields: the fields and tables at the top level of the file that have a problem.
    """

    path: Path
    content: dict[str, object] = field(default_factory=dict)
    lines: dict[tuple[str, ...], int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    invalid_fields: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, path: Path) -> TomlFile:
        file = cls(path)
        try:
            text = path.read_text(encoding="utf-8")
            file.lines = lines_of(text)
            file.content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            file.problems.append(toml_problem(path, error))
        except UnicodeDecodeError:
            file.problems.append(Problem(path, None, "the file is not UTF-8"))
        except OSError as error:
            file.problems.append(Problem(path, None, f"cannot read the file: {error.strerror}"))
        return file

    def report(self, message: str, *path: str) -> None:
        self.add_problem(Problem(self.path, self.line(*path), message), *path)

    def add_problem(self, problem: Problem, *path: str) -> None:
        """Adds a problem of this field. The problem may be in a file that the field names."""
        self.problems.append(problem)
        self.invalid_fields.update(path[:1])

    def line(self, *path: str) -> int | None:
        """The line of a field, or of the table that lacks the field."""
        return next((self.lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self.lines), None)

    def section(self, *path: str) -> Section:
        """A table; the whole file without a path. Empty if the table does not exist."""
        found: object = self.content
        for name in path:
            found = found.get(name, {}) if isinstance(found, Mapping) else {}
        if not isinstance(found, Mapping):
            self.report(f"[{'.'.join(path)}] must be a table", *path)
            found = {}
        return Section(self, path, dict(found))


class Section:
    """Reads the fields of a table. ``finish`` reports the fields that were not read."""

    def __init__(self, file: TomlFile, path: tuple[str, ...], fields: dict[str, object]) -> None:
        self._file, self._path, self._fields = file, path, fields
        self._known: list[str] = []

    def text(self, name: str, default: str = "", choices: Collection[str] = ()) -> str:
        value = self._take(name)
        if value is None:
            return default
        if not isinstance(value, str):
            self.report(name, f"{self._named(name)} must be a text in quotes")
            return default
        if choices and value not in choices:
            self.report(name, f"{self._named(name)} cannot be {value!r}{did_you_mean(value, choices)}")
            return default
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts. A single text counts as a list of one."""
        value = self._take(name)
        values = [value] if isinstance(value, str) else value
        if value is None:
            return ()
        if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
            self.report(name, f'{self._named(name)} must be a list of texts, such as ["a", "b"]')
            return ()
        return tuple(values)

    def whole(self, name: str, default: int, *, at_least: int = 0) -> int:
        value = self._take(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
            self.report(name, f"{self._named(name)} must be a whole number of at least {at_least}")
            return default
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        value = self._take(name)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        self.report(name, f"{self._named(name)} must be true or false")
        return default

    def mapping(self, name: str) -> dict[str, str]:
        """A table of settings. Numbers and booleans become texts, as Spark needs them.

        A name with dots may stand without quotes: TOML reads ``security.protocol`` as a table in a table.
        """
        value = self._take(name)
        if value is None:
            return {}
        found = dict(_flat(value)) if isinstance(value, Mapping) else {"": []}
        if any(isinstance(each, list) for each in found.values()):
            self.report(name, f'{self._named(name)} must be a table of settings, such as {{"name" = "value"}}')
            return {}
        return {key: str(each).lower() if isinstance(each, bool) else str(each) for key, each in found.items()}

    def report(self, name: str, message: str) -> None:
        self._file.report(message, *self._path, name)

    def add_problem(self, name: str, problem: Problem) -> None:
        self._file.add_problem(problem, *self._path, name)

    def finish(self, *subsections: str) -> None:
        """Reports the fields that were not read."""
        for name in self._fields:
            if name not in subsections:
                known = [*self._known, *subsections]
                where = f" in [{'.'.join(self._path)}]" if self._path else ""
                self.report(name, f"there is no field {name!r}{where}{did_you_mean(name, known)}")

    def _take(self, name: str) -> object:
        self._known.append(name)
        return self._fields.pop(name, None)

    def _named(self, name: str) -> str:
        return ".".join((*self._path, name))
