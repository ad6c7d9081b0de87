"""Reads back the records of the producers' tests: by plain fetches, without a consumer."""

from headrace.client.cluster import Cluster
from headrace.client.config import AdminConfig
from headrace.protocol.api import Api
from headrace.protocol.record_body import decode_records
from headrace.protocol.records import check_batch, iter_headers

READ_COMMITTED = 1


async def read(servers, topic="t", partition=0, *, is_committed=False):
    """The records of a partition, in order; control records left out, and of committed ones only, if so wanted."""
    return [record for _, record in await _read(servers, topic, partition, is_committed)]


async def read_values(servers, topic="t", partition=0, *, is_committed=False):
    return [record.value for record in await read(servers, topic, partition, is_committed=is_committed)]


async def read_headers(servers, topic="t", partition=0):
    """The headers of the batches."""
    return list(dict.fromkeys(header for header, _ in await _read(servers, topic, partition, is_committed=False)))


async def has_marker(servers, topic="t", partition=0):
    """Whether a transaction in the partition has ended."""
    async with Cluster(AdminConfig.load(bootstrap_servers=servers)) as cluster:
        await cluster.partitions_of(topic)
        data, _ = await _fetch(cluster, topic, partition, 0, is_committed=False)
        return any(header.is_control for _, header in iter_headers(data))


async def _read(servers, topic, partition, is_committed):
    async with Cluster(AdminConfig.load(bootstrap_servers=servers)) as cluster:
        await cluster.partitions_of(topic)
        found, offset, aborted = [], 0, {}
        while True:
            data, transactions = await _fetch(cluster, topic, partition, offset, is_committed)
            for transaction in transactions:
                aborted.setdefault(int(transaction.producer_id), set()).add(int(transaction.first_offset))
            if not data:
                return found
            for at, header in iter_headers(data):
                check_batch(data, at)
                offset = header.next_offset
                begun = {first for first in aborted.get(header.producer_id, ()) if first <= header.base_offset}
                if header.is_control:
                    aborted.get(header.producer_id, set()).difference_update(begun)
                elif not (header.is_transactional and begun):
                    found += [(header, record) for record in decode_records(data[at : at + header.size_bytes])]


async def _fetch(cluster, topic, partition, offset, is_committed):
    connection = await cluster.connection(cluster.leader(topic, partition).id)
    answer = await connection.ask(
        Api.FETCH, version=12, cluster_id=None, replica_id=-1, max_wait=0, min_bytes=0,
        max_bytes=2**30, isolation_level=READ_COMMITTED if is_committed else 0, session_id=0, session_epoch=-1,
        topics=[
            {
                "topic": topic,
                "partitions": [
                    {
                        "partition": partition, "current_leader_epoch": -1, "fetch_offset": offset,
                        "last_fetched_epoch": -1, "log_start_offset": -1, "partition_max_bytes": 2**20,
                    }
                ],
            }
        ],
        forgotten_topics_data=[], rack_id="",
    )  # fmt: skip
    (found,) = answer.responses[0].partitions
    return bytes(found.records or b""), found.aborted_transactions or ()
