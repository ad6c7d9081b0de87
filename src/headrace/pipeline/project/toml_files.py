"""TOML files of a project, read so that every complaint names its file and line.

``tomllib`` keeps no positions. What is looked for here is only where a table begins and where a key is set, which a
scan of the lines finds; multi-line texts are skipped.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.client.errors import HeadraceError

_TABLE = re.compile(r"^\s*\[\[?\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""^\s*([A-Za-z0-9_\-."']+(?:\s*\.\s*[A-Za-z0-9_\-"']+)*)\s*=""")
_AT_LINE = re.compile(r"\s*\(at line (\d+), column \d+\)")
_TRIPLE = re.compile(r'"""|\'\'\'')


@dataclass(frozen=True)
class Problem:
    """Something wrong in a project, and where. Lines and columns count from 1."""

    file: Path
    line: int | None
    message: str
    column: int | None = None

    def __str__(self) -> str:
        place = ":".join(str(each) for each in (self.file, self.line, self.column) if each is not None)
        return f"{place}: {self.message}"


class ProjectError(HeadraceError):
    """A project that cannot be used as it is; ``problems`` are all that was found."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def did_you_mean(name: str, known: Collection[str]) -> str:
    """``: did you mean page?``, or what there is, or nothing."""
    nearest = difflib.get_close_matches(name.lower(), {each.lower(): each for each in known}, n=1)
    if nearest:
        return f": did you mean {next(each for each in known if each.lower() == nearest[0])}?"
    return f": there is {', '.join(sorted(known))}" if 0 < len(known) <= 20 else ""


def lines_of(text: str) -> dict[tuple[str, ...], int]:
    """On which line each table and each key is, by its path."""
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


@dataclass
class TomlFile:
    """A file's content, and the problems found in it so far.

    :param doubtful: the fields and tables at the top of the file that have a problem.
    """

    path: Path
    content: dict[str, object] = field(default_factory=dict)
    lines: dict[tuple[str, ...], int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    doubtful: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, path: Path) -> TomlFile:
        file = cls(path)
        try:
            text = path.read_text(encoding="utf-8")
            file.lines = lines_of(text)
            file.content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            place = _AT_LINE.search(str(error))
            message = _AT_LINE.sub("", str(error))
            file.problems.append(Problem(path, int(place[1]) if place else None, f"not TOML: {message}"))
        except UnicodeDecodeError:
            file.problems.append(Problem(path, None, "not UTF-8"))
        except OSError as error:
            file.problems.append(Problem(path, None, f"cannot be read: {error.strerror}"))
        return file

    def complain(self, message: str, *path: str) -> None:
        self.blame(Problem(self.path, self.line(*path), message), *path)

    def blame(self, problem: Problem, *path: str) -> None:
        """Adds a problem of this field, which may be in a file that the field names."""
        self.problems.append(problem)
        self.doubtful.update(path[:1])

    def line(self, *path: str) -> int | None:
        """Of a field, or of the table that the field is missing from."""
        return next((self.lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self.lines), None)

    def section(self, *path: str) -> Section:
        """A table; the whole file without a path. An empty one if it is not there."""
        found: object = self.content
        for name in path:
            found = found.get(name, {}) if isinstance(found, Mapping) else {}
        if not isinstance(found, Mapping):
            self.complain(f"[{'.'.join(path)}] must be a table", *path)
            found = {}
        return Section(self, path, dict(found))


class Section:
    """Takes fields out of a table; what is left over at the end nobody knows."""

    def __init__(self, file: TomlFile, path: tuple[str, ...], fields: dict[str, object]) -> None:
        self._file, self._path, self._fields = file, path, fields
        self._known: list[str] = []

    def text(self, name: str, default: str = "", choices: Collection[str] = ()) -> str:
        value = self._take(name)
        if value is None:
            return default
        if not isinstance(value, str):
            self.complain(name, f"{self._named(name)} must be a text in quotes")
            return default
        if choices and value not in choices:
            self.complain(name, f"{self._named(name)} cannot be {value!r}{did_you_mean(value, choices)}")
            return default
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts; one text stands for a list of one."""
        value = self._take(name)
        values = [value] if isinstance(value, str) else value
        if value is None:
            return ()
        if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
            self.complain(name, f'{self._named(name)} must be a list of texts, ["a", "b"]')
            return ()
        return tuple(values)

    def whole(self, name: str, default: int, *, at_least: int = 0) -> int:
        value = self._take(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
            self.complain(name, f"{self._named(name)} must be a whole number of at least {at_least}")
            return default
        return value

    def mapping(self, name: str) -> dict[str, str]:
        """A table of settings; numbers and booleans become texts, as Spark wants them."""
        value = self._take(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping) or any(isinstance(each, (list, Mapping)) for each in value.values()):
            self.complain(name, f'{self._named(name)} must be a table of settings, {{"name" = "value"}}')
            return {}
        return {key: str(each).lower() if isinstance(each, bool) else str(each) for key, each in value.items()}

    def complain(self, name: str, message: str) -> None:
        self._file.complain(message, *self._path, name)

    def blame(self, name: str, problem: Problem) -> None:
        self._file.blame(problem, *self._path, name)

    def finish(self, *subsections: str) -> None:
        """Complains of fields that nobody asked for."""
        for name in self._fields:
            if name not in subsections:
                known = [*self._known, *subsections]
                where = f" in [{'.'.join(self._path)}]" if self._path else ""
                self.complain(name, f"there is no field {name!r}{where}{did_you_mean(name, known)}")

    def _take(self, name: str) -> object:
        self._known.append(name)
        return self._fields.pop(name, None)

    def _named(self, name: str) -> str:
        return ".".join((*self._path, name))
