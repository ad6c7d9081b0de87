"""Makes ``docs/client-metrics.md`` from the table of the clients' metrics; ``script/generate-docs`` calls it."""

from collections.abc import Iterator

from headrace.client.metrics.table import GROUPS, Row
from headrace.tools.docs.markdown import table

_INTRODUCTION = """\
# Client metrics

<!-- Made by script/generate-docs from src/headrace/client/metrics/table.py. Do not edit. -->

`client.metrics()` of a producer, consumer or admin client returns these metrics. Names, groups and tags are those of
Kafka's Java clients; `throttle-time` of the admin client is our own. Averages (`-avg`), maxima (`-max`) and rates
(`-rate`, per second) are about the last `metrics.num.samples` × `metrics.sample.window.ms`, a minute by default. An
average or a maximum of nothing is NaN. Totals (`-total`) count from the start of the client. See the [client
guide](clients.md#metrics).

Brokers that ask for metrics ([telemetry](clients.md#telemetry)) get them under the names of KIP-714:
`org.apache.kafka.`, then the group without `-metrics`, then the name, with dots instead of hyphens. So
`request-latency-avg` of `producer-node-metrics` is `org.apache.kafka.producer.node.request.latency.avg`.
"""


def render() -> str:
    """The page."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    for groups, tags, rows in GROUPS:
        yield f"## {groups} ({', '.join(tags)})\n"
        yield from table(("Metrics", "What they measure"), map(_row, rows))


def _row(row: Row) -> tuple[str, str]:
    names = [row.name + stat.ending for stat in row.stats] or [row.name]
    return ", ".join(f"`{name}`" for name in names), row.doc
