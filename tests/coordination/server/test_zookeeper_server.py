"""The served tree on a real socket: kazoo and its recipes, broken connections, restarts and ``kill -9``."""

import asyncio
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import Queue
from threading import Event

import pytest
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, NotEmptyError
from kazoo.protocol.serialization import Connect, Create, SetData, write_string
from kazoo.security import OPEN_ACL_UNSAFE

from headrace.coordination.server.four_letter_words import FOUR_LETTER_WORDS
from headrace.coordination.server.service import TreeService
from headrace.coordination.server.tree_server import TreeServer
from headrace.coordination.tree.host import TreeHost
from headrace.runtime.timer import Timer
from headrace.testing import ManualClock
from headrace.testing.broker_process import BrokerProcess, StartFailed

PATIENCE_S = 20


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder, words = tmp_path_factory.mktemp("tree"), ("-o", "4lw.commands.whitelist=*")
    with BrokerProcess(folder, "--tick-time", "1000", *words, command="zookeeper") as process:
        yield process


@pytest.fixture
def connect(server, request):
    """Clients that see a part of the tree which is this test's own."""
    clients = []
    chroot = f"/{abs(hash(request.node.nodeid)):x}"
    maker = KazooClient(server.address)
    maker.start(PATIENCE_S)
    maker.create(chroot)
    maker.stop()
    maker.close()

    def connect(**options):
        client = KazooClient(f"{server.address}{chroot}", **{"timeout": 10.0} | options)
        clients.append(client)
        client.start(PATIENCE_S)
        return client

    yield connect
    for client in clients:
        client.stop()
        client.close()


def recv_exactly(sock, length):
    data = b""
    while len(data) < length:
        more = sock.recv(length - len(data))
        assert more, f"closed after {len(data)} of {length} bytes"
        data += more
    return data


def raw_session(address, timeout_ms=2_000):
    """A socket with a session on it, that does only what the test does."""
    host, port = address.split(":")
    sock = socket.create_connection((host, int(port)), PATIENCE_S)
    sock.sendall(frame_of(Connect(0, 0, timeout_ms, 0, bytes(16), False).serialize()))
    (length,) = struct.unpack(">i", recv_exactly(sock, 4))
    answer, _ = Connect.deserialize(recv_exactly(sock, length), 0)
    return sock, answer


def frame(xid, number, body):
    return frame_of(struct.pack(">ii", xid, number) + bytes(body))


def frame_of(content):
    return struct.pack(">i", len(content)) + bytes(content)


def ask_word(address, word):
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as sock:
        sock.sendall(word)
        return b"".join(iter(lambda: sock.recv(4096), b"")).decode()


# kazoo


def test_the_calls(connect):
    client = connect()
    assert client.create("/a/b/c", b"1", makepath=True) == "/a/b/c"
    with pytest.raises(NodeExistsError):
        client.create("/a")
    data, stat = client.get("/a/b/c")
    assert (data, stat.version) == (b"1", 0)
    assert client.set("/a/b/c", b"2", version=0).version == 1
    with pytest.raises(BadVersionError):
        client.delete("/a/b/c", version=0)
    with pytest.raises(NotEmptyError):
        client.delete("/a")
    assert client.exists("/nowhere") is None
    assert client.get_children("/a") == ["b"]
    client.delete("/a", recursive=True)
    with pytest.raises(NoNodeError):
        client.get("/a")
    assert client.sync("/") == "/"
    assert client.server_version() >= (3, 6)


def test_a_thousand_requests_in_flight(connect):
    client = connect()
    asked = [client.create_async("/n-", str(number).encode(), sequence=True) for number in range(1_000)]
    paths = [answer.get(timeout=PATIENCE_S) for answer in asked]
    assert paths == [f"/n-{number:010d}" for number in range(1_000)]
    assert client.get(paths[-1])[0] == b"999"


def test_a_znode_of_almost_a_mebibyte(connect):
    client = connect()
    client.create("/big", b"x" * 1_000_000)
    assert client.get("/big")[0] == b"x" * 1_000_000


def test_transactions(connect):
    client = connect()
    failed = client.transaction()
    failed.create("/a")
    failed.check("/", 99)
    results = failed.commit()
    assert isinstance(results[1], BadVersionError)
    assert client.exists("/a") is None
    with client.transaction() as done:
        done.create("/a", b"1")
        done.set_data("/a", b"2")
    assert client.get("/a")[0] == b"2"


def test_lock(connect):
    first, second = connect(), connect()
    held, waiting = first.Lock("/lock", "first"), second.Lock("/lock", "second")
    held.acquire(timeout=PATIENCE_S)
    assert not waiting.acquire(blocking=False)
    with ThreadPoolExecutor(1) as pool:
        taken = pool.submit(waiting.acquire, timeout=PATIENCE_S)
        held.release()
        assert taken.result(PATIENCE_S)
    assert held.contenders() == ["second"]
    waiting.release()


def test_an_election_goes_on_when_the_leader_leaves(connect):
    leaders = Queue()
    release = {"first": Event(), "second": Event()}
    clients = {name: connect() for name in release}

    def lead(name):
        leaders.put(name)
        release[name].wait(PATIENCE_S)

    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(client.Election("/election", name).run, lead, name) for name, client in clients.items()]
        leader = leaders.get(timeout=PATIENCE_S)
        release[leader].set()
        (other,) = release.keys() - {leader}
        assert leaders.get(timeout=PATIENCE_S) == other
        release[other].set()
        for run in runs:
            run.result(PATIENCE_S)


def test_watches_of_children_and_data(connect):
    watching, changing = connect(), connect()
    seen_children, seen_data = Queue(), Queue()
    watching.ChildrenWatch("/", seen_children.put)
    watching.DataWatch("/a", lambda data, _: seen_data.put(data))
    assert seen_children.get(timeout=PATIENCE_S) == []
    assert seen_data.get(timeout=PATIENCE_S) is None
    changing.create("/a", b"1")
    assert seen_children.get(timeout=PATIENCE_S) == ["a"]
    assert seen_data.get(timeout=PATIENCE_S) == b"1"
    changing.set("/a", b"2")
    assert seen_data.get(timeout=PATIENCE_S) == b"2"
    changing.delete("/a")
    assert seen_data.get(timeout=PATIENCE_S) is None
    assert seen_children.get(timeout=PATIENCE_S) == []


def test_more_recipes(connect):
    client, other = connect(), connect()
    counter = client.Counter("/counter")
    counter += 3
    assert other.Counter("/counter").value == 3
    queue = client.LockingQueue("/queue")
    queue.put_all([b"one", b"two"])
    assert other.LockingQueue("/queue").get(timeout=PATIENCE_S) == b"one"
    party = client.Party("/party", "client")
    party.join()
    assert list(other.Party("/party")) == ["client"]
    barrier = client.Barrier("/barrier")
    barrier.create()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other.Barrier("/barrier").wait, PATIENCE_S)
        barrier.remove()
        assert waiting.result(PATIENCE_S)


# Sessions


def test_ephemerals_of_a_silent_client_go_after_its_timeout(server, connect):
    client = connect()
    gone = Event()
    sock, answer = raw_session(server.address, timeout_ms=1)
    with sock:
        assert answer.time_out == 2_000
        path = f"{client.chroot}/silent"
        sock.sendall(frame(1, 1, Create(path, b"", OPEN_ACL_UNSAFE, 1).serialize()))
        recv_exactly(sock, 4 + 16)
        assert client.exists("/silent", watch=lambda _: gone.set()).ephemeralOwner == answer.session_id
        assert gone.wait(PATIENCE_S)
        while sock.recv(4096):  # the rest of the reply, then the end
            pass


# What goes wrong


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">i", -1),
        struct.pack(">i", 0x100000) + b"x",
        struct.pack(">i", 3) + b"abc",
        bytes(100),
    ],
    ids=["http", "negative", "too long", "no request", "zeros"],
)
def test_bad_bytes_end_that_connection_only(server, connect, garbage):
    client = connect()
    host, port = server.address.split(":")
    for begin in (
        lambda: socket.create_connection((host, int(port)), PATIENCE_S),
        lambda: raw_session(server.address)[0],
    ):
        with begin() as sock:
            sock.sendall(garbage)
            assert sock.recv(1) == b""
    assert client.get_children("/") == []
    assert server.is_running
    assert "Traceback" not in server.log


def test_who_does_not_read_is_not_read_from(server, connect):
    client = connect()
    client.create("/big", b"x" * 500_000)
    sock, _ = raw_session(server.address, timeout_ms=20_000)
    with sock:
        sock.settimeout(0.5)
        path = f"{client.chroot}/big".encode()
        request = frame(1, 4, struct.pack(">i", len(path)) + path + b"\0")
        with pytest.raises(TimeoutError):
            sock.sendall(request * 1_000_000)
        assert server.resident_bytes < 200_000_000
        assert client.get_children("/") == ["big"]


async def test_a_client_that_sends_much_at_once_takes_turns_with_others(monkeypatch):
    """All requests that had arrived together were answered before those of another client."""
    monkeypatch.setattr("headrace.coordination.server.tree_server._TURN_NS", 0)  # a turn is one request
    clock = ManualClock()
    service = TreeService.of(TreeHost(clock), clock, Timer(clock), secret=b"")
    server = TreeServer(service)
    address = await server.start("127.0.0.1", 0)
    connect = frame_of(Connect(0, 0, 40_000, 0, bytes(16), False).serialize())
    busy, busy_writer = await asyncio.open_connection(*address)
    other, other_writer = await asyncio.open_connection(*address)
    busy_writer.write(connect + frame(-2, 11, b"") * 2_000)
    await busy.readexactly(41)
    other_writer.write(connect)
    await other.readexactly(41)
    assert service.counts.received < 1_500, "the other client has waited for all requests"
    await busy.readexactly(2_000 * 20)
    assert service.counts.received == 2_002
    for writer in (busy_writer, other_writer):
        writer.close()
    await server.stop()


async def test_who_does_not_read_its_events_is_dropped(monkeypatch, caplog):
    monkeypatch.setattr("headrace.coordination.server.tree_server.MAX_UNSENT_BYTES", 100_000)
    clock = ManualClock()
    service = TreeService.of(TreeHost(clock), clock, Timer(clock), secret=b"")
    server = TreeServer(service)
    host, port = await server.start("127.0.0.1", 0)
    connect = frame_of(Connect(0, 0, 40_000, 0, bytes(16), False).serialize())
    path = f"/{'x' * 2_000}"
    add_recursive_watch = frame(1, 106, write_string("/") + struct.pack(">i", 1))

    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    deaf.setblocking(False)
    await asyncio.get_running_loop().sock_connect(deaf, (host, port))
    deaf.send(connect + add_recursive_watch)
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(connect + frame(1, 1, Create(path, b"", OPEN_ACL_UNSAFE, 0).serialize()))
    change = frame(2, 5, SetData(path, b"", -1).serialize()) * 100
    while len(service.connections) != 1 or not caplog.records:
        writer.write(change)
        await reader.read(100_000)
    assert "does not read its replies" in caplog.text
    assert len(service.sessions) == 2  # it may come back
    deaf.close()
    writer.close()
    await server.stop()


def test_four_letter_words(server, connect):
    client = connect()
    client.get_children("/", watch=print)
    assert ask_word(server.address, b"ruok") == "imok"
    assert ask_word(server.address, b"isro") == "rw"
    assert "Mode: standalone\n" in ask_word(server.address, b"srvr")
    assert "\nClients:\n /127.0.0.1:" in ask_word(server.address, b"stat")
    assert f"sid={client.client_id[0]:#x}" in ask_word(server.address, b"cons")
    assert "Total watches:1" in ask_word(server.address, b"wchs")
    values = dict(line.split("\t") for line in ask_word(server.address, b"mntr").splitlines())
    assert values["zk_server_state"] == "standalone"
    assert int(values["zk_znode_count"]) >= 2


def test_only_listed_words_are_answered(tmp_path):
    """The default is ZooKeeper 3.9's."""
    with BrokerProcess(tmp_path / "default", command="zookeeper") as server:
        assert "Mode: standalone\n" in ask_word(server.address, b"srvr")
        for word in set(FOUR_LETTER_WORDS) - {b"srvr"}:
            refusal = f"{word.decode()} is not executed because it is not in the whitelist.\n"
            assert ask_word(server.address, word) == refusal
    with BrokerProcess(tmp_path / "one", "-o", "4lw.commands.whitelist=ruok", command="zookeeper") as server:
        assert ask_word(server.address, b"ruok") == "imok"
        assert "Mode: standalone\n" in ask_word(server.address, b"srvr")
        assert "whitelist" in ask_word(server.address, b"mntr")


# Restarts


def test_what_was_answered_survives_kill_9_and_clients_come_back(tmp_path):
    lost, back = Event(), Event()

    def listen(state):
        if state == KazooState.CONNECTED:
            if lost.is_set():
                back.set()
        else:
            assert state == KazooState.SUSPENDED  # and not LOST: the session is still the same
            lost.set()

    with BrokerProcess(tmp_path, command="zookeeper") as server:
        client = KazooClient(server.address, timeout=20.0)
        client.start(PATIENCE_S)
        try:
            client.add_listener(listen)
            client.create("/mine", ephemeral=True)
            written = [client.create("/n-", bytes([number]), sequence=True) for number in range(200)]
            session_id, _ = client.client_id
            port = server.address.rpartition(":")[2]
            server.kill()
            assert lost.wait(PATIENCE_S)
            with BrokerProcess(tmp_path, "--listen", f"127.0.0.1:{port}", command="zookeeper"):
                assert back.wait(PATIENCE_S)
                assert client.client_id[0] == session_id
                assert client.exists("/mine").ephemeralOwner == session_id
                assert sorted(client.get_children("/")) == ["mine", *(path[1:] for path in written)]
                assert client.get(written[-1])[0] == bytes([199])
                client.remove_listener(listen)
                client.stop()
        finally:
            client.stop()
            client.close()


def test_what_was_answered_before_kill_9_in_the_midst_of_writing_is_there(tmp_path):
    with BrokerProcess(tmp_path, command="zookeeper") as server:
        sock, _ = raw_session(server.address, timeout_ms=40_000)
        with sock:
            create = Create("/n-", b"x" * 100, OPEN_ACL_UNSAFE, 2).serialize()
            sock.sendall(b"".join(frame(xid, 1, create) for xid in range(3_000)))
            reply_bytes = 4 + 16 + 4 + len("/n-0000000000")
            recv_exactly(sock, 500 * reply_bytes)
            server.kill()
            rest = b""
            with suppress(ConnectionResetError):
                while more := sock.recv(65_536):
                    rest += more
    answered = 500 + len(rest) // reply_bytes
    with BrokerProcess(tmp_path, command="zookeeper") as server:
        client = KazooClient(server.address)
        client.start(PATIENCE_S)
        names = sorted(client.get_children("/"))
        client.stop()
        client.close()
    assert names == [f"n-{number:010d}" for number in range(len(names))]
    assert 500 <= answered <= len(names)


def test_a_clean_stop(tmp_path):
    with BrokerProcess(tmp_path, command="zookeeper") as server:
        sock, _ = raw_session(server.address)
        with sock:
            assert server.terminate() == 0
            assert sock.recv(1) == b""
        assert "Traceback" not in server.log


def test_what_keeps_it_from_starting_is_one_line(tmp_path):
    with BrokerProcess(tmp_path / "a", command="zookeeper") as server:
        for arguments, folder, reason in (
            (("--listen", server.address), "b", f"cannot listen on {server.address}: [Aa]ddress already in use"),
            ((), "a", "a is in use by another process"),
            (("--listen", "nonsense"), "b", "'nonsense' is not an address; write HOST:PORT"),
        ):
            with pytest.raises(StartFailed, match=f"^headrace: .*{reason}\n$"):
                BrokerProcess(tmp_path / folder, *arguments, command="zookeeper")
    (tmp_path / "a" / "tree.snapshot").write_bytes(b"nonsense")
    with pytest.raises(StartFailed, match=r"^headrace: cannot open the znode tree in .*\n$"):
        BrokerProcess(tmp_path / "a", command="zookeeper")
