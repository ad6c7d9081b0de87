"""Makes ``docs/metrics.md`` from the table that the exporter serves; ``script/generate-docs`` calls it."""

from collections.abc import Iterator

from headrace.broker.metrics.families import SUBJECTS
from headrace.broker.metrics.family import Family
from headrace.console import metrics as console_metrics
from headrace.pipeline.version import metrics as pipeline_metrics
from headrace.tools.docs.markdown import table

_INTRODUCTION = """\
# Metrics

<!-- Made by script/generate-docs from src/headrace/broker/metrics/families.py and
     src/headrace/pipeline/version/metrics.py and src/headrace/console/metrics.py. Do not edit. -->

`headrace start --metrics 127.0.0.1:9404` (or the setting `headrace.metrics.listener`) serves these at
`http://127.0.0.1:9404/metrics`, in Prometheus' text format or OpenMetrics, whichever the scraper asks for. Names and
labels are those of dashboards for Apache Kafka: the names that the JMX exporter makes of Kafka's own metrics with its
example rules for Kafka, in lower case.

For Prometheus:

```yaml
scrape_configs:
  - job_name: kafka
    static_configs:
      - targets: ["127.0.0.1:9404"]
```

For scrapers on other hosts, the endpoint needs TLS and a secret (or `headrace.metrics.allow.insecure=true`):

```properties
headrace.metrics.listener=0.0.0.0:9404
headrace.metrics.ssl.certificate.location=/etc/headrace/metrics.pem
headrace.metrics.ssl.key.location=/etc/headrace/metrics.key
headrace.metrics.bearer.token.file=/etc/headrace/metrics-token
```

```yaml
    scheme: https
    authorization: {credentials_file: /etc/prometheus/headrace-token}
    tls_config: {ca_file: /etc/prometheus/ca.pem}
```

Other ways to give the secret: `headrace.metrics.basic.auth.file` (one line `USER:PASSWORD`), or the variables
`HEADRACE_METRICS_BEARER_TOKEN` and `HEADRACE_METRICS_BASIC_AUTH` of the environment. A renewed certificate is used for
new connections, without a restart.

A scrape runs on a thread of its own and pauses often, so that requests do not wait. With 10,000 partitions a scrape
takes most of a second, and the 99th percentile of request times does not change.
"""

_PROCESS = """\
## The process

The metrics of prometheus_client for every process: `process_cpu_seconds_total`, `process_resident_memory_bytes`,
`process_virtual_memory_bytes`, `process_open_fds`, `process_max_fds`, `process_start_time_seconds`, and `python_info`.
"""

_VIEWS = """\
## Views

`headrace views run --metrics-listen 127.0.0.1:9405` serves these metrics of the views that it runs, and the metrics of
the process above. All have the labels `view` and `version`; the state metric also has `state`. Counters start at 0
with the process; `headrace views status --json` has the totals since the start of a version.
"""

_CONSOLE = """\
## The console

`headrace console` serves these metrics at `/metrics` of its own address, without a login: paths are those of the guide
(`/topics/{topic}`), so no name of the cluster is in them. Counters start at 0 with the process.
"""

_NOT_YET = """\
## Missing metrics

There are no metrics of groups and transactions yet. The idle percentages of Kafka's thread pools have no
counterpart, because one event loop does all the work: a busy broker has `rate(process_cpu_seconds_total[1m])` near 1.
Compute rates (`OneMinuteRate` and the like) in Prometheus. The only rate here is that of fetchers, because Kafka
reports the minimum over all fetchers.
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
    yield _CONSOLE
    yield from table(("Metric", "Type", "Labels", "What it is"), map(_console_row, console_metrics.FAMILIES))
    yield _NOT_YET


def _row(family: Family) -> tuple[str, ...]:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    return f"`{family.name}`", family.kind.value, labels, family.meaning


def _console_row(family: console_metrics.Family) -> tuple[str, ...]:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    return f"`{console_metrics.full_name(family)}`", family.kind, labels, family.meaning
