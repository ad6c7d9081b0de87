"""Two servers of ZooKeeper's protocol are given the same random requests, and must answer the same; for script/interop.

    alike.py OURS REAL [ROUNDS]

Each round begins with an empty tree. Three clients create, read, change, delete, watch, protect, log in and leave, with
paths, versions and access control lists of which many are wrong. Both servers have the super user ``super:secret``, who
removes what a round left. Compared are results, codes, and the events that each client gets for each request.
Transaction ids, times and session ids are not: they are each server's own. Where a path is none, ZooKeeper
looks for it all the same and finds no znode, or says that the arguments are bad; we always say the latter, and either
is taken. What differs is printed with its round, which is its seed.
"""

import random
import socket
import struct
import sys
from collections.abc import Sequence

from kazoo.exceptions import EXCEPTIONS
from kazoo.protocol.serialization import (
    Auth,
    CheckVersion,
    Connect,
    Create,
    Create2,
    Delete,
    Exists,
    GetACL,
    GetChildren,
    GetChildren2,
    GetData,
    ReplyHeader,
    SetACL,
    SetData,
    Sync,
    Transaction,
    Watch,
    write_string,
)
from kazoo.protocol.states import ZnodeStat
from kazoo.security import (
    ACL,
    CREATOR_ALL_ACL,
    OPEN_ACL_UNSAFE,
    READ_ACL_UNSAFE,
    Id,
    Permissions,
    make_digest_acl,
)

TOP = "/alike"
ROOT = "/alike/root"  # of which the name may be given a number, so that it must not be at the very top
GOOD_PATHS = [f"{ROOT}{path}" for path in ("", "/a", "/b", "/a/x", "/a/y", "/e", "/e/z")]
BAD_PATHS = [f"{ROOT}{path}" for path in ("/", "//a", "/./a", "/a/", "/..", "/\0", "/\1", "/a\u2028b", "/é")] + [
    "alike"
]
REQUESTS_PER_ROUND, CLIENTS = 60, 3
CLOSE, ADD_WATCH, REMOVE_WATCHES = -11, 106, 18
SAME_TO_US = {"BadArgumentsError": "NoNodeError"}
AUTH_XID = -4
USERS = ["alice:a", "bob:b"]


def entry(permissions: int, scheme: str, name: str) -> ACL:
    return ACL(permissions, Id(scheme, name))


#: Lists that everybody may use come more often, so that a round does not end with everything protected.
ACLS = [
    *[OPEN_ACL_UNSAFE] * 8,
    CREATOR_ALL_ACL,
    [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE],
    READ_ACL_UNSAFE,
    [make_digest_acl("alice", "a", read=True, write=True, create=True)],
    [make_digest_acl("alice", "a", all=True), make_digest_acl("bob", "b", read=True)],
    [make_digest_acl("bob", "b", admin=True), entry(Permissions.READ, "ip", "127.0.0.1")],
    [entry(Permissions.ALL, "ip", "127.0.0.0/8")],
    [entry(Permissions.ALL, "ip", "10.0.0.0/8"), entry(Permissions.CREATE | Permissions.DELETE, "world", "anyone")],
    [entry(Permissions.ADMIN, "world", "anyone")],
    [entry(Permissions.ALL & ~Permissions.READ, "world", "anyone")],
    [*OPEN_ACL_UNSAFE, *OPEN_ACL_UNSAFE],
    [],
    [entry(31, "world", "nobody")],
    [entry(31, "digest", "alice")],
    [entry(31, "digest", "alice:x:y")],
    [entry(31, "digest", "alice:x:")],
    [entry(31, "ip", "127.0.0.1/33")],
    [entry(31, "ip", "here")],
    [entry(31, "kerberos", "alice")],
    [entry(64, "ip", "::1/128")],
]


class WatchRequest:
    """What kazoo does not know: addWatch and removeWatches."""

    def __init__(self, number: int, path: str, mode: int) -> None:
        self.type, self._body = number, write_string(path) + struct.pack(">i", mode)
        self._shown = f"{'add' if number == ADD_WATCH else 'remove'} watch {path} {mode}"

    def serialize(self) -> bytes:
        return self._body

    def __repr__(self) -> str:
        return self._shown


class Client:
    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), 10)
        self._file = self._socket.makefile("rb")
        self._xid = 0
        self.events: list[tuple[int, str]] = []
        self._send(bytes(Connect(0, 0, 20_000, 0, bytes(16), False).serialize()))
        self._receive()

    def _send(self, frame: bytes) -> None:
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)

    def _receive(self) -> bytes:
        (length,) = struct.unpack(">i", self._file.read(4))
        return self._file.read(length)

    def ask(self, request) -> object:
        """What it gave, in a form that can be compared; the name of the error if it was refused."""
        self._xid += 1
        xid = AUTH_XID if isinstance(request, Auth) else self._xid
        self._send(struct.pack(">ii", xid, request.type) + bytes(request.serialize()))
        while True:
            frame = self._receive()
            header, offset = ReplyHeader.deserialize(frame, 0)
            if header.xid == xid:
                break
            event, _ = Watch.deserialize(frame, offset)
            self.events.append((event.type, event.path))
        if header.err:
            return EXCEPTIONS[header.err].__name__
        if isinstance(request, (Auth, Delete, CheckVersion, WatchRequest)):
            return None
        result = request.deserialize(frame, offset)
        if isinstance(request, GetChildren):
            return sorted(result)
        if isinstance(request, GetChildren2):
            return sorted(result[0]), comparable(result[1])
        return comparable(result)

    def take_events(self) -> list[tuple[int, str]]:
        self.ask(Sync(ROOT))
        taken, self.events = self.events, []
        return taken

    def leave(self) -> None:
        self._send(struct.pack(">ii", 1, CLOSE))
        self._file.read()
        self._file.close()
        self._socket.close()


def comparable(value: object) -> object:
    if isinstance(value, ZnodeStat):
        is_ephemeral = value.ephemeralOwner != 0
        return value.version, value.cversion, value.aversion, is_ephemeral, value.dataLength, value.numChildren
    if isinstance(value, Exception):
        return type(value).__name__
    if isinstance(value, (list, tuple)):
        return [comparable(each) for each in value]
    return value


def remove(client: Client, path: str) -> None:
    found = client.ask(GetChildren(path, None))
    if isinstance(found, list):
        for name in found:
            remove(client, f"{path}/{name}")
        client.ask(Delete(path, -1))


def change(chance: random.Random, *, within_multi: bool):
    path = chance.choice(BAD_PATHS if chance.random() < 0.1 else GOOD_PATHS)
    version, data = chance.choice([-1, -1, -1, 0, 1, 2]), b"x" * chance.randrange(4)
    acl = chance.choice(ACLS)
    kinds = [
        lambda: Create(path, data, acl, chance.choice([0, 0, 0, 1, 2, 3])),
        lambda: Delete(path, version),
        lambda: SetData(path, data, version),
        lambda: CheckVersion(path, version) if within_multi else Create2(path, data, acl, chance.choice([0, 1, 2])),
    ]
    return chance.choice(kinds)()


def question(chance: random.Random):
    path, watch = chance.choice(GOOD_PATHS if chance.random() < 0.9 else BAD_PATHS), chance.random() < 0.5
    kind = chance.choice([Exists, GetData, GetChildren, GetChildren2, GetACL, Sync, "add", "remove"])
    if kind in (GetACL, Sync):
        return kind(path)
    if kind == "add":
        return WatchRequest(ADD_WATCH, chance.choice(GOOD_PATHS), chance.choice([0, 1]))
    if kind == "remove":
        return WatchRequest(REMOVE_WATCHES, chance.choice(GOOD_PATHS), chance.choice([1, 2, 3, 4, 5]))
    return kind(path, watch or None)


def any_request(chance: random.Random):
    if (kind := chance.random()) < 0.03:
        return Auth(0, "digest", chance.choice(USERS))
    if kind < 0.1:
        return SetACL(chance.choice(GOOD_PATHS), chance.choice(ACLS), chance.choice([-1, -1, 0, 1]))
    if kind < 0.45:
        return change(chance, within_multi=False)
    if kind < 0.55:
        return Transaction([change(chance, within_multi=True) for _ in range(chance.randrange(4))])
    return question(chance)


def differences(addresses: Sequence[str], seed: int) -> int:
    chance = random.Random(seed)
    servers = [[Client(address) for _ in range(CLIENTS)] for address in addresses]
    for address in addresses:
        cleaner = Client(address)
        cleaner.ask(Auth(0, "digest", "super:secret"))
        remove(cleaner, TOP)
        for path in (TOP, ROOT):
            cleaner.ask(Create(path, b"", OPEN_ACL_UNSAFE, 0))
        cleaner.leave()
    count = 0
    for step in range(REQUESTS_PER_ROUND):
        index = chance.randrange(CLIENTS)
        if chance.random() < 0.03:
            shown = "leave"
            answers = []
            for clients, address in zip(servers, addresses, strict=True):
                clients[index].leave()
                # In which order the ephemerals of one session go is not told by anybody.
                answers.append(sorted(sorted(c.take_events()) for i, c in enumerate(clients) if i != index))
                clients[index] = Client(address)
        else:
            request = any_request(chance)
            shown = repr(request)
            answers = [(clients[index].ask(request), [c.take_events() for c in clients]) for clients in servers]
        if normal(answers[0]) != normal(answers[1]):
            count += 1
            sys.stdout.write(f"round {seed}, request {step}: {shown}\n  ours {answers[0]}\n  real {answers[1]}\n")
    for clients in servers:
        for client in clients:
            client.leave()
    return count


def normal(answer: object) -> str:
    text = repr(answer)
    for ours, theirs in SAME_TO_US.items():
        text = text.replace(ours, theirs)
    return text


def main() -> int:
    ours, real, *rest = sys.argv[1:]
    rounds = int(rest[0]) if rest else 100
    found = 0
    for seed in range(rounds):
        found += differences((ours, real), seed)
        if found > 5:
            break
    sys.stdout.write(f"{seed + 1} rounds of {REQUESTS_PER_ROUND} requests, {found} differences\n")
    return found > 0


if __name__ == "__main__":
    sys.exit(main())
