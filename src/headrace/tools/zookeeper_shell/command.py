"""``headrace zookeeper-shell``: shows and changes the znodes of any ZooKeeper, or of ``headrace zookeeper``.

With a command as argument the shell runs that command. Without one it reads commands from standard input: on a terminal
with a prompt and line editing (without a history), otherwise line by line. A line that fails does not stop the lines
after it, but makes the exit code 1. Errors of ZooKeeper have the words of ZooKeeper's own shell.

The client is kazoo. ``--timeout`` limits every call. ``-zk-tls-config-file``, as in Kafka's shell, takes the settings
of TLS to ZooKeeper from a properties file; the file may also have a login (``headrace.zookeeper.login``).
"""

from __future__ import annotations

import logging
import sys
from argparse import REMAINDER, ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any, NoReturn

from headrace.coordination.acls import Acl, AclEntry
from headrace.coordination.client.client_security import ClientSecurity
from headrace.coordination.interface import Stat
from headrace.tools.shared.commands import (
    DEFAULT_TIMEOUT_MS,
    DONE,
    FAILED,
    CommandError,
    Output,
    UsageError,
    new_parser,
    run,
)
from headrace.tools.shared.zookeeper_options import client_security
from headrace.tools.zookeeper_shell.znode_commands import COMMANDS, ZnodeError, execute, split_line

if TYPE_CHECKING:
    from kazoo.client import KazooClient  # type: ignore[import-untyped]

_EXAMPLES = """
headrace zookeeper-shell 127.0.0.1:2181 ls /brokers/ids
headrace zookeeper-shell 127.0.0.1:2181 get -s /controller
headrace zookeeper-shell --json 127.0.0.1:2181/kafka ls -R /config
headrace zookeeper-shell --login-file headrace-data/zookeeper/brokers.login 127.0.0.1:36999 get /controller
headrace zookeeper-shell zk1:2182 -zk-tls-config-file zk-tls.properties getAcl /config/users
echo 'create /a hello' | headrace zookeeper-shell 127.0.0.1:2181
headrace zookeeper-shell 127.0.0.1:2181
"""
_TLS_OPTION = "-zk-tls-config-file"
_WITH_VALUE = ("--timeout", "--login-file", _TLS_OPTION)
_SESSION_TIMEOUT_S = 30.0
_END_WITHIN_S = 2.0
_PIPELINED = 1_000

#: kazoo's name of an error, and the words of ZooKeeper's own shell, which are followed by the path.
_WORDS = {
    "NoNodeError": "Node does not exist: ",
    "NoChildrenForEphemeralsError": "Ephemerals cannot have children: ",
    "NodeExistsError": "Node already exists: ",
    "NotEmptyError": "Node not empty: ",
    "AuthFailedError": "Authentication failed: ",
    "NotReadOnlyCallError": "Not a read-only call: ",
    "InvalidACLError": "Acl is not valid : ",
    "NoAuthError": "Insufficient permission : ",
    "BadArgumentsError": "Arguments are not valid : ",
    "BadVersionError": "version No is not valid : ",
    "QuotaExceededError": "Quota has exceeded : ",
}


def parser() -> ArgumentParser:
    commands = "\n".join(f"    {name} {command.usage}".rstrip() for name, command in COMMANDS.items())
    parser = new_parser(
        "zookeeper-shell",
        f"Show and change the znodes of a ZooKeeper. The commands are those of ZooKeeper's own shell:\n\n{commands}",
        _EXAMPLES,
        connects=False,
    )
    parser.add_argument(
        "--timeout",
        metavar="MS",
        type=int,
        default=DEFAULT_TIMEOUT_MS,
        help="give up after this time (default %(default)s)",
    )
    parser.add_argument(
        _TLS_OPTION,
        dest="zk_tls_file",
        metavar="FILE",
        help="a file with the settings zookeeper.ssl.* of Kafka's brokers",
    )
    parser.add_argument("--login-file", metavar="FILE", help="a file with USER:PASSWORD, to log in by addauth digest")
    parser.add_argument("server", metavar="HOST:PORT[,HOST:PORT...][/CHROOT]", help="the address of a ZooKeeper")
    parser.add_argument(
        "command", nargs=REMAINDER, help="one command with its arguments (default: read commands from standard input)"
    )
    return parser


def main(arguments: Sequence[str]) -> int:
    return run(parser(), _options_first(arguments), _work)


def _options_first(arguments: Sequence[str]) -> list[str]:
    """Moves our own options before the address, because all words after the address belong to the shell command."""
    before, rest = [], list(arguments)
    address: list[str] = []
    while rest:
        word = rest[0]
        if word in _WITH_VALUE:
            before += rest[:2]
            rest = rest[2:]
        elif word in ("--json", "--help", "-h", "--version") or word.startswith(("--timeout=", "--login-file=")):
            before.append(rest.pop(0))
        elif address or word.startswith("-"):
            break
        else:
            address = [rest.pop(0)]
    return [*before, *address, *rest]


def _work(options: Namespace, out: Output) -> int:
    with _connected(options.server, options.timeout, client_security(options), out) as znodes:
        if options.command:
            try:
                execute(znodes, options.command, out)
            except ZnodeError as error:
                _complain(error)
                return FAILED
            return DONE
        if sys.stdin.isatty():
            return _converse(znodes, options.server, out)
        results = [_is_done(znodes, words, out) for words in _lines()]
        return DONE if all(results) else FAILED


def _lines() -> Iterator[list[str]]:
    for line in sys.stdin:
        words = split_line(line)
        if words[:1] in (["quit"], ["exit"]):
            return
        if words:
            yield words


def _is_done(znodes: KazooZnodes, words: Sequence[str], out: Output) -> bool:
    """Runs one command of several. It prints an error and returns False if the command fails."""
    try:
        execute(znodes, words, out)
    except CommandError as error:
        _complain(error)
        return False
    return True


def _complain(error: CommandError) -> None:
    """Prints an error in the words of ZooKeeper's own shell, without our command's name."""
    sys.stdout.flush()
    sys.stderr.write(f"{error}\n")


# On a terminal


def _converse(znodes: KazooZnodes, server: str, out: Output) -> int:
    _edit_lines(znodes)
    count = 0
    while True:
        try:
            words = split_line(input(f"[zk: {server}({znodes.state}) {count}] "))
        except EOFError:
            sys.stdout.write("\n")
            return DONE
        except KeyboardInterrupt:
            sys.stdout.write("\n")
            continue
        if words[:1] in (["quit"], ["exit"]):
            return DONE
        if words:
            count += 1
            try:
                _is_done(znodes, words, out)
            except KeyboardInterrupt:
                sys.stdout.write("\n")


def _edit_lines(znodes: KazooZnodes) -> None:
    """Enables line editing, and completion of commands and paths by Tab."""
    try:
        import readline
    except ImportError:
        return
    readline.set_auto_history(False)
    readline.set_completer_delims(" ")
    found: list[str] = []

    def complete(text: str, index: int) -> str | None:
        if index == 0:
            found[:] = _completions(znodes, text)
        return found[index] if index < len(found) else None

    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")


def _completions(znodes: KazooZnodes, text: str) -> list[str]:
    if not text.startswith("/"):
        return [f"{name} " for name in sorted(COMMANDS) if name.startswith(text)]
    parent, _, begun = text.rpartition("/")
    try:
        names, _ = znodes.children(parent or "/")
    except CommandError:
        return []
    return [f"{parent}/{name}" for name in names if name.startswith(begun)]


# The client


@contextmanager
def _connected(server: str, timeout_ms: int, security: ClientSecurity, out: Output) -> Iterator[KazooZnodes]:
    from kazoo.client import KazooClient

    from headrace.coordination.client.kazoo_transport import BufferedHandler, login_options

    # kazoo logs every attempt to connect; the user needs the outcome only, which we print.
    logging.getLogger("kazoo").addHandler(logging.NullHandler())
    logging.getLogger("kazoo").propagate = False
    timeout_s = timeout_ms / 1000
    handler = BufferedHandler(timeout_s, security.tls)
    try:
        client = KazooClient(server, timeout=_SESSION_TIMEOUT_S, handler=handler, **login_options(security))
    except ValueError as error:
        raise UsageError(f"{server!r} is not the address of a ZooKeeper: {error}") from None
    try:
        # Not start(): when start() gives up, it waits for a server that does not answer.
        if not client.start_async().wait(timeout_s):
            reason = "" if handler.last_error is None else f": {handler.last_error.strerror or handler.last_error}"
            raise CommandError(f"cannot connect to a ZooKeeper at {server} within {timeout_ms} ms{reason}")
        yield KazooZnodes(client, timeout_s, out)
    finally:
        patience_s = _END_WITHIN_S if client.connected else 0
        ending = Thread(target=_end, args=(client,), daemon=True)
        ending.start()
        ending.join(patience_s)


def _end(client: KazooClient) -> None:
    """Closes the session, which deletes its ephemeral znodes. This may take long if the server does not answer."""
    client.stop()
    client.close()


class KazooZnodes:
    """Implements ``znode_commands.Znodes``. Prints watches to ``out`` when they fire."""

    def __init__(self, client: KazooClient, timeout_s: float, out: Output) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._show_event = partial(show_event, out)

    @property
    def state(self) -> str:
        return str(self._client.client_state)

    def get(self, path: str, *, watch: bool = False) -> tuple[bytes | None, Stat]:
        data, stat = self._wait(path, "get", watch=self._show_event if watch else None)
        return data, Stat(*stat)

    def exists(self, path: str, *, watch: bool = False) -> Stat:
        stat = self._wait(path, "exists", watch=self._show_event if watch else None)
        if stat is None:
            raise ZnodeError(f"{_WORDS['NoNodeError']}{path}")
        return Stat(*stat)

    def children(self, path: str, *, watch: bool = False) -> tuple[list[str], Stat]:
        names, stat = self._wait(path, "get_children", watch=self._show_event if watch else None, include_data=True)
        return sorted(names), Stat(*stat)

    def set(self, path: str, data: bytes, version: int) -> Stat:
        return Stat(*self._wait(path, "set", data, version=version))

    def create(self, path: str, data: bytes | None, acl: Acl, *, ephemeral: bool, sequence: bool) -> str:
        return str(self._wait(path, "create", data, acl=_their_acl(acl), ephemeral=ephemeral, sequence=sequence))

    def delete(self, path: str, version: int) -> None:
        self._wait(path, "delete", version=version)

    def sync(self, path: str) -> None:
        self._wait(path, "sync")

    def add_auth(self, scheme: str, credential: str) -> None:
        self._wait(scheme, "add_auth", credential)

    def get_acl(self, path: str) -> tuple[Acl, Stat]:
        acl, stat = self._wait(path, "get_acls")
        return tuple(AclEntry(entry.perms, entry.id.scheme, entry.id.id) for entry in acl), Stat(*stat)

    def set_acl(self, path: str, acl: Acl, version: int) -> Stat:
        return Stat(*self._wait(path, "set_acls", _their_acl(acl), version=version))

    def children_of_many(self, paths: Sequence[str]) -> list[list[str]]:
        found: list[list[str]] = []
        for batch in _batches(paths):
            asked = [(path, self._ask(path, "get_children")) for path in batch]
            for path, answer in asked:
                try:
                    found.append(sorted(self._result(path, answer)))
                except _GoneError:
                    found.append([])
        return found

    def delete_many(self, paths: Sequence[str]) -> bool:
        is_done = True
        for batch in _batches(paths):
            asked = [(path, self._ask(path, "delete")) for path in batch]
            for path, answer in asked:
                try:
                    self._result(path, answer)
                except _GoneError:
                    pass
                except ZnodeError:
                    is_done = False
        return is_done

    def _wait(self, path: str, call: str, *arguments: object, **options: object) -> Any:
        return self._result(path, self._ask(path, call, *arguments, **options))

    def _ask(self, path: str, call: str, *arguments: object, **options: object) -> Any:
        try:
            return getattr(self._client, f"{call}_async")(path, *arguments, **options)
        except (TypeError, ValueError) as error:  # A path that kazoo rejects before sending.
            raise ZnodeError(f"Arguments are not valid : {path} ({error})") from None

    def _result(self, path: str, answer: Any) -> Any:
        from kazoo.exceptions import KazooException  # type: ignore[import-untyped]
        from kazoo.handlers.threading import KazooTimeoutError  # type: ignore[import-untyped]

        try:
            return answer.get(timeout=self._timeout_s)
        except KazooTimeoutError:
            raise ZnodeError(f"no answer within {self._timeout_s * 1000:.0f} ms for {path}") from None
        except KazooException as error:
            _refuse(path, error)


def _their_acl(acl: Acl) -> list[object]:
    from kazoo.security import ACL, Id  # type: ignore[import-untyped]

    return [ACL(permissions, Id(scheme, name)) for permissions, scheme, name in acl]


class _GoneError(ZnodeError):
    """There is no such znode."""


def _refuse(path: str, error: Exception) -> NoReturn:
    name = type(error).__name__
    kind = _GoneError if name == "NoNodeError" else ZnodeError
    if name in _WORDS:
        raise kind(f"{_WORDS[name]}{path}") from None
    raise kind(f"KeeperErrorCode = {name.removesuffix('Error')} for {path}") from None


def _batches(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(paths), _PIPELINED):
        yield paths[start : start + _PIPELINED]


_EVENTS = {
    "CREATED": "NodeCreated",
    "DELETED": "NodeDeleted",
    "CHANGED": "NodeDataChanged",
    "CHILD": "NodeChildrenChanged",
}


def show_event(out: Output, event: Any) -> None:
    """Prints that a watch has fired; runs on a thread of kazoo's."""
    kind = _EVENTS.get(event.type)
    if kind is not None:
        told = {"state": "SyncConnected", "type": kind, "path": event.path}
        words = " ".join(f"{name}:{value}" for name, value in told.items())
        out.show({"watchedEvent": told}, f"\nWATCHER::\n\nWatchedEvent {words}")
        sys.stdout.flush()
