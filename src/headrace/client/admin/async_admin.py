"""AsyncAdmin: everything that can be asked of a cluster besides its records.

::

    async with AsyncAdmin(bootstrap_servers="127.0.0.1:9092") as admin:
        await admin.create_topic("orders", num_partitions=3)
        for group in await admin.list_groups(): ...

A method on one item returns its value or raises. A method on many gives :class:`Results`, a dict of what became of
each: its value, or its exception. Every method takes ``timeout_ms``, which bounds it with all its retries; without, it
is ``default.api.timeout.ms``. What a broker does not speak is :class:`UnsupportedByBroker`.

The methods live by subject in ``admin_*.py``.
"""

from headrace.client.admin.cluster import ClusterAdmin
from headrace.client.admin.configs import ConfigsAdmin
from headrace.client.admin.group_offsets import GroupOffsetsAdmin
from headrace.client.admin.groups import GroupsAdmin
from headrace.client.admin.records import RecordsAdmin
from headrace.client.admin.topics import TopicsAdmin
from headrace.client.admin.transactions import TransactionsAdmin


class AsyncAdmin(
    TopicsAdmin, ConfigsAdmin, RecordsAdmin, GroupsAdmin, GroupOffsetsAdmin, TransactionsAdmin, ClusterAdmin
):
    """Topics, settings, offsets, groups, transactions and brokers of a cluster."""
