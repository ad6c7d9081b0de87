"""The commands of ``headrace zookeeper-shell``: parses a line, runs it, and prints what ZooKeeper's shell prints.

``COMMANDS`` is the table of commands. The commands work on :class:`Znodes`, and do not know the client behind it.
"""

from __future__ import annotations

import base64
import binascii
import re
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from headrace.coordination.acls import OPEN_ACL, Acl
from headrace.coordination.interface import ANY_VERSION, Stat
from headrace.tools.shared.commands import CommandError, Output, UsageError
from headrace.tools.zookeeper_shell.acl_text import acl_json, acl_lines, parse_acl


class ZnodeError(CommandError):
    """ZooKeeper rejected the request; the message has the words of ZooKeeper's own shell."""


class Znodes(Protocol):
    """The operations of a ZooKeeper that the commands need. A rejected operation raises ZnodeError."""

    def get(self, path: str, *, watch: bool = False) -> tuple[bytes | None, Stat]: ...

    def exists(self, path: str, *, watch: bool = False) -> Stat: ...

    def children(self, path: str, *, watch: bool = False) -> tuple[list[str], Stat]: ...

    def set(self, path: str, data: bytes, version: int) -> Stat: ...

    def create(self, path: str, data: bytes | None, acl: Acl, *, ephemeral: bool, sequence: bool) -> str: ...

    def delete(self, path: str, version: int) -> None: ...

    def sync(self, path: str) -> None: ...

    def add_auth(self, scheme: str, credential: str) -> None: ...

    def get_acl(self, path: str) -> tuple[Acl, Stat]: ...

    def set_acl(self, path: str, acl: Acl, version: int) -> Stat: ...

    def children_of_many(self, paths: Sequence[str]) -> list[list[str]]:
        """The names of the children of each path; empty if the znode has been deleted meanwhile."""
        ...

    def delete_many(self, paths: Sequence[str]) -> bool:
        """Deletes znodes in this order, and ignores znodes that are already deleted.

        False if one could not be deleted.
        """
        ...


# Lines

#: Words, or text in quotes. Quotes within a word are part of the word, so that JSON without blanks needs no quotes.
_WORD = re.compile(r"""\s*([^"'\s]\S*|"[^"]*"|'[^']*')\s*""")


def split_line(line: str) -> list[str]:
    words = [match.group(1) for match in _WORD.finditer(line)]
    return [word[1:-1] if len(word) > 1 and word[0] in "\"'" and word[-1] == word[0] else word for word in words]


class Arguments(NamedTuple):
    flags: dict[str, str]
    words: list[str]

    @property
    def path(self) -> str:
        return self.words[0]

    def number(self, flag: str, default: int) -> int:
        try:
            return int(self.flags.get(flag, default))
        except ValueError:
            raise UsageError(f"-{flag} needs a number, not {self.flags[flag]!r}") from None


class Command(NamedTuple):
    run: Callable[[Znodes, Arguments, Output], None]
    usage: str
    #: The letters of options; a colon follows an option with a value.
    flags: str
    word_counts: range

    def parse(self, name: str, words: Sequence[str]) -> Arguments:
        """Parses options anywhere before ``--``. A negative number is not an option."""
        flags: dict[str, str] = {}
        plain: list[str] = []
        rest = iter(words)
        for word in rest:
            if word == "--":
                plain += rest
            elif len(word) == 2 and word[0] == "-" and word[1] in self.flags.replace(":", ""):
                has_value = f"{word[1]}:" in self.flags
                value = next(rest, None) if has_value else ""
                if value is None:
                    raise UsageError(f"Missing argument for option: {word[1]}; usage: {name} {self.usage}")
                flags[word[1]] = value
            elif re.fullmatch(r"-[^\d].*", word):
                raise UsageError(f"Unrecognized option: {word}; usage: {name} {self.usage}")
            else:
                plain.append(word)
        if len(plain) not in self.word_counts:
            raise UsageError(f"usage: {name} {self.usage}")
        return Arguments(flags, plain)


# What they do


def _ls(znodes: Znodes, given: Arguments, out: Output) -> None:
    if "R" in given.flags:
        paths = subtree(znodes, given.path)
        out.show(paths, paths)
        return
    names, stat = znodes.children(given.path, watch="w" in given.flags)
    lines = [f"[{', '.join(names)}]"]
    if "s" in given.flags:
        out.show({"children": names, "stat": stat._asdict()}, [*lines, *stat_lines(stat)])
    else:
        out.show(names, lines)


def _get(znodes: Znodes, given: Arguments, out: Output) -> None:
    data, stat = znodes.get(given.path, watch="w" in given.flags)
    lines = ["null" if data is None else _text(data, as_base64="b" in given.flags)]
    value: dict[str, object] = _json_data(data)
    if "s" in given.flags:
        value["stat"] = stat._asdict()
        lines += stat_lines(stat)
    out.show(value, lines)


def _set(znodes: Znodes, given: Arguments, out: Output) -> None:
    path, text = given.words
    stat = znodes.set(path, _data(text, as_base64="b" in given.flags), given.number("v", ANY_VERSION))
    out.show({"path": path, "stat": stat._asdict()}, stat_lines(stat) if "s" in given.flags else [])


def _create(znodes: Znodes, given: Arguments, out: Output) -> None:
    path, text = given.path, given.words[1] if len(given.words) > 1 else None
    acl = parse_acl(given.words[2]) if len(given.words) > 2 else OPEN_ACL
    data = None if text is None else text.encode()
    created = znodes.create(path, data, acl, ephemeral="e" in given.flags, sequence="s" in given.flags)
    out.show({"path": created}, f"Created {created}")


def _delete(znodes: Znodes, given: Arguments, out: Output) -> None:
    znodes.delete(given.path, given.number("v", ANY_VERSION))
    out.show({"deleted": given.path}, [])


def _delete_all(znodes: Znodes, given: Arguments, out: Output) -> None:
    if given.path == "/":
        raise UsageError("the root cannot be deleted")
    paths = subtree(znodes, given.path)
    if not znodes.delete_many(paths[::-1]):
        raise ZnodeError("Failed to delete some node(s) in the subtree!")
    out.show({"deleted": given.path, "count": len(paths)}, [])


def _stat(znodes: Znodes, given: Arguments, out: Output) -> None:
    stat = znodes.exists(given.path, watch="w" in given.flags)
    out.show(stat._asdict(), stat_lines(stat))


def _sync(znodes: Znodes, given: Arguments, out: Output) -> None:
    znodes.sync(given.path)
    out.show({"synced": given.path}, "Sync is OK")


def _add_auth(znodes: Znodes, given: Arguments, out: Output) -> None:
    scheme, credential = given.words[0], given.words[1] if len(given.words) > 1 else ""
    znodes.add_auth(scheme, credential)
    out.show({"scheme": scheme}, [])


def _get_acl(znodes: Znodes, given: Arguments, out: Output) -> None:
    acl, stat = znodes.get_acl(given.path)
    value: dict[str, object] = {"acl": acl_json(acl)}
    if "s" in given.flags:
        value["stat"] = stat._asdict()
    out.show(value, [*acl_lines(acl), *(stat_lines(stat) if "s" in given.flags else ())])


def _set_acl(znodes: Znodes, given: Arguments, out: Output) -> None:
    path, acl, version = given.path, parse_acl(given.words[1]), given.number("v", ANY_VERSION)
    # From the leaves up, so that a list without READ does not hide the rest.
    paths = subtree(znodes, path)[::-1] if "R" in given.flags else [path]
    stats = [znodes.set_acl(each, acl, version) for each in paths]
    is_shown = "s" in given.flags and "R" not in given.flags
    out.show({"path": path, "stat": stats[-1]._asdict()}, stat_lines(stats[-1]) if is_shown else [])


def _help(_znodes: Znodes, _given: Arguments, out: Output) -> None:
    usages = {name: command.usage for name, command in sorted(COMMANDS.items())} | {"quit": ""}
    out.show(usages, (f"\t{name} {usage}".rstrip() for name, usage in usages.items()))


_ONE = range(1, 2)

COMMANDS = {
    "ls": Command(_ls, "[-s] [-w] [-R] path", "swR", _ONE),
    "get": Command(_get, "[-s] [-w] [-b] path", "swb", _ONE),
    "set": Command(_set, "[-s] [-v version] [-b] path data", "sv:b", range(2, 3)),
    "create": Command(_create, "[-s] [-e] path [data] [acl]", "se", range(1, 4)),
    "delete": Command(_delete, "[-v version] path", "v:", _ONE),
    "deleteall": Command(_delete_all, "path", "", _ONE),
    "rmr": Command(_delete_all, "path", "", _ONE),
    "stat": Command(_stat, "[-w] path", "w", _ONE),
    "addauth": Command(_add_auth, "scheme auth", "", range(1, 3)),
    "getAcl": Command(_get_acl, "[-s] path", "s", _ONE),
    "setAcl": Command(_set_acl, "[-s] [-v version] [-R] path acl", "sv:R", range(2, 3)),
    "sync": Command(_sync, "path", "", _ONE),
    "help": Command(_help, "", "", range(1)),
}


def execute(znodes: Znodes, words: Sequence[str], out: Output) -> None:
    """:raises CommandError: if the command fails; UsageError if there is no such command."""
    name, *rest = words
    command = COMMANDS.get(name)
    if command is None:
        raise UsageError(f"Command not found: {name}; there are {', '.join(sorted(COMMANDS))}")
    command.run(znodes, command.parse(name, rest), out)


# Helpers


def subtree(znodes: Znodes, path: str) -> list[str]:
    """The path and all paths below it, each parent directly before its children.

    Asks for one level of the tree at a time.
    """
    names, _ = znodes.children(path)
    found, level = [path], [_child(path, name) for name in names]
    while level:
        found += level
        below = znodes.children_of_many(level)
        level = [_child(parent, name) for parent, names in zip(level, below, strict=True) for name in names]
    return sorted(found, key=lambda found_path: found_path.rstrip("/").split("/"))


def _child(path: str, name: str) -> str:
    return f"{path.rstrip('/')}/{name}"


def stat_lines(stat: Stat) -> Iterable[str]:
    return (
        f"cZxid = {_hex(stat.czxid)}",
        f"ctime = {_java_date(stat.ctime_ms)}",
        f"mZxid = {_hex(stat.mzxid)}",
        f"mtime = {_java_date(stat.mtime_ms)}",
        f"pZxid = {_hex(stat.pzxid)}",
        f"cversion = {stat.cversion}",
        f"dataVersion = {stat.version}",
        f"aclVersion = {stat.aversion}",
        f"ephemeralOwner = {_hex(stat.ephemeral_owner)}",
        f"dataLength = {stat.data_length}",
        f"numChildren = {stat.num_children}",
    )


def _hex(value: int) -> str:
    return f"{value & 0xFFFF_FFFF_FFFF_FFFF:#x}"


def _java_date(time_ms: int) -> str:
    return time.strftime("%a %b %d %H:%M:%S %Z %Y", time.localtime(time_ms // 1000))


def _text(data: bytes, *, as_base64: bool) -> str:
    return base64.b64encode(data).decode() if as_base64 else data.decode(errors="replace")


def _data(text: str, *, as_base64: bool) -> bytes:
    if not as_base64:
        return text.encode()
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise UsageError(f"{text!r} is not base64: {error}") from None


def _json_data(data: bytes | None) -> dict[str, object]:
    try:
        return {"data": None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {"data_base64": base64.b64encode(data or b"").decode()}
