"""Makes ``docs/metrics.md`` from the table that the exporter serves; ``script/generate-docs`` calls it."""

from collections.abc import Iterator

from headrace.broker.metrics.families import SUBJECTS, Family
from headrace.pipeline.version import metrics as pipeline_metrics
from headrace.tools.docs.markdown import table

_INTRODUCTION = """\
# Metrics

<!-- Made by script/generate-docs from src/headrace/broker/metrics/families.py and
     src/headrace/pipeline/version/metrics.py. Do not edit. -->

`headrace start --metrics 127.0.0.1:9404` (or the setting `headrace.metrics.listener`) serves these at
`http://127.0.0.1:9404/metrics`, in Prometheus' text format or OpenMetrics, whichever the scraper asks for. Names and
labels are those that dashboards for Apache Kafka have: what the JMX exporter makes of Kafka's own metrics with its
example rules for Kafka, names in lower case.

For Prometheus:

```yaml
scrape_configs:
  - job_name: kafka
    static_configs:
      - targets: ["127.0.0.1:9404"]
```

A scrape runs beside the event loop and rests often, so that requests do not wait for it: with 10,000 partitions it
takes most of a second, and the 99th percentile of request times stays what it was.
"""

_PROCESS = """\
## The process

What prometheus_client knows of every process: `process_cpu_seconds_total`, `process_resident_memory_bytes`,
`process_virtual_memory_bytes`, `process_open_fds`, `process_max_fds`, `process_start_time_seconds`, and `python_info`.
"""

_VIEWS = """\
## Views

`headrace views run --metrics-listen 127.0.0.1:9405` serves these, and what is said of the process above, of the views
that it runs. All have the labels `view` and `version`; the state also has `state`. Counters begin with the process;
`headrace views status --json` has totals since a version began.
"""

_NOT_YET = """\
## Not here yet

Groups, transactions and quotas: their metrics come with them.
The idle percentages of Kafka's thread pools have no counterpart, as one event loop does their work: a broker that is
busy has `rate(process_cpu_seconds_total[1m])` near 1. Rates (`OneMinuteRate` and the like) are left to Prometheus,
all but that of fetchers, of which Kafka shows the least.
"""


def render() -> str:
    """The page."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    for subject, families in SUBJECTS.items():
        yield f"## {subject}\n"
        yield from table(("Metric", "Type", "Labels", "What it is"), map(_row, families))
    yield _PROCESS
    yield _VIEWS
    rows = ((f"`{family.name}`", family.kind, family.meaning) for family in pipeline_metrics.FAMILIES)
    yield from table(("Metric", "Type", "What it is"), rows)
    yield _NOT_YET


def _row(family: Family) -> tuple[str, ...]:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    return f"`{family.name}`", family.kind.value, labels, family.meaning
