"""The things that the pages of the browser tests are about. A page whose path has a parameter takes it from VALUES."""

from __future__ import annotations

from headrace import Admin, Producer
from headrace.client.types import TopicPartition

#: A value for each parameter of a path in the registry of pages.
VALUES: dict[str, object] = {"topic": "orders", "partition": 0, "offset": 0, "group": "billing"}


VALUES["view"] = "pages"


def fill(bootstrap_servers: str) -> None:
    """Creates the topics, records and groups."""
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        admin.create_topic("orders", num_partitions=3, configs={"max.message.bytes": 100_000})
        admin.create_topic("payments")
        with Producer(bootstrap_servers=bootstrap_servers) as producer:
            for number in range(50):
                producer.send("orders", key=b"customer-%d" % (number % 5), value=b'{"number": %d}' % number)
            producer.send("orders", key=b"customer", value=b'{"number": -1}', partition=0)
        for group in ("billing", "<img src=x onerror=alert(1)>"):
            admin.alter_group_offsets(group, {TopicPartition("orders", partition): 2 for partition in range(3)})
