"""Null data of znodes, which ZooKeeper distinguishes from empty data. Compared with a real ZooKeeper."""

import asyncio
import struct
import uuid
from contextlib import contextmanager

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.serialization import Create as WireCreate
from kazoo.protocol.serialization import SetData as WireSetData
from kazoo.protocol.serialization import Transaction, read_buffer
from kazoo.security import OPEN_ACL_UNSAFE

from headrace.coordination.interface import Create, SetData
from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.xdist_group("zookeeper")

PATIENCE_S = 20
GET_DATA, MULTI_READ = 4, 22


@contextmanager
def connected(address):
    client = KazooClient(address)
    client.start(PATIENCE_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


class MultiRead:
    """Reads the data of many znodes in one request, which kazoo does not know."""

    type = MULTI_READ

    def __init__(self, *paths):
        self._paths = [path.encode() for path in paths]

    def serialize(self):
        reads = (struct.pack(">i?ii", GET_DATA, False, -1, len(path)) + path + b"\0" for path in self._paths)
        return bytearray(b"".join(reads) + struct.pack(">i?i", -1, True, -1))

    def deserialize(self, answer, offset):
        found = []
        for _ in self._paths:
            data, offset = read_buffer(answer, offset + 9)
            found.append(data)
            offset += 68  # its Stat
        return found


def multi(client, *requests):
    """Runs a transaction with null data, which kazoo's own transactions refuse."""
    done = client.handler.async_result()
    client._call(Transaction(requests), done)
    return done.get(PATIENCE_S)


def multi_read(client, *paths):
    done = client.handler.async_result()
    client._call(MultiRead(*paths), done)
    return done.get(PATIENCE_S)


def write_and_read(address):
    root = f"/null-{uuid.uuid4().hex}"
    with connected(address) as client:
        client.create(root, None)
        client.create(f"{root}/empty", b"")
        path, stat = client.create(f"{root}/made", None, include_data=True)
        assert (path, stat.dataLength) == (f"{root}/made", 0)
        client.create(f"{root}/set", b"x")
        assert client.set(f"{root}/set", None).dataLength == 0
        created, changed = multi(
            client,
            WireCreate(f"{root}/multi", None, OPEN_ACL_UNSAFE, 0),
            WireSetData(f"{root}/empty", None, 0),
        )
        assert (created, changed.version) == (f"{root}/multi", 1)
        client.set(f"{root}/empty", b"", version=1)
        names = ("", "/empty", "/made", "/set", "/multi")
        assert [client.get(root + name)[0] for name in names] == [None, b"", None, None, None]
        assert [client.exists(root + name).dataLength for name in names] == [0] * 5
        assert multi_read(client, root, f"{root}/empty", f"{root}/multi") == [None, b"", None]
        assert client.get("/")[0] == b""


async def test_what_is_written_as_null_is_read_as_null(remote):
    await asyncio.to_thread(write_and_read, remote.address)


async def test_a_broker_reads_null_as_empty(harness):
    client = await harness.client()
    await client.multi([Create("/a", None), Create("/b", b"x"), SetData("/b", None)])
    for path in ("/a", "/b"):
        data, stat = await client.get(path)
        assert (data, stat.data_length) == (b"", 0)


def test_null_is_still_null_after_kill_9(tmp_path):
    with BrokerProcess(tmp_path, command="zookeeper") as server:
        with connected(server.address) as client:
            client.create("/null", None)
            client.create("/empty", b"")
        server.kill()
    with BrokerProcess(tmp_path, command="zookeeper") as server, connected(server.address) as client:
        assert client.get("/null")[0] is None
        assert client.get("/empty")[0] == b""
