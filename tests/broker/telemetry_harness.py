"""Makes OTLP metrics as clients push them, and clients that push them to a broker."""

from broker_harness import Client, unique
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from headrace.protocol.api import Api

CLIENT_METRICS = 16
SET, DELETE, APPEND = range(3)
DELTA, CUMULATIVE = 1, 2


def otlp(*metrics, **resource):
    """The bytes of MetricsData. A metric is a function that fills in a Metric."""
    data = MetricsData()
    resource_metrics = data.resource_metrics.add()
    set_attributes(resource_metrics.resource.attributes, resource)
    scope = resource_metrics.scope_metrics.add()
    for fill in metrics:
        fill(scope.metrics.add())
    return data.SerializeToString()


def set_attributes(target, attributes):
    for key, value in attributes.items():
        attribute = target.add(key=key)
        kind = {str: "string_value", bool: "bool_value", int: "int_value", float: "double_value"}[type(value)]
        setattr(attribute.value, kind, value)


def gauge(name, value, **attributes):
    def fill(metric):
        metric.name = name
        set_attributes(metric.gauge.data_points.add(as_double=value).attributes, attributes)

    return fill


def counter(name, value, temporality=DELTA, *, monotonic=True, **attributes):
    def fill(metric):
        metric.name = name
        metric.sum.aggregation_temporality = temporality
        metric.sum.is_monotonic = monotonic
        set_attributes(metric.sum.data_points.add(as_int=value).attributes, attributes)

    return fill


def histogram(name, bounds, counts, total, temporality=DELTA, **attributes):
    def fill(metric):
        metric.name = name
        metric.histogram.aggregation_temporality = temporality
        point = metric.histogram.data_points.add(
            count=sum(counts), sum=total, explicit_bounds=bounds, bucket_counts=counts
        )
        set_attributes(point.attributes, attributes)

    return fill


def remove_subscriptions(address):
    """Removes the subscriptions of a broker that tests share. One without ``match`` is for the clients of all tests."""
    with Client(address) as client:
        for resource in client.ask(Api.LIST_CONFIG_RESOURCES, 0).config_resources:
            settings = ("metrics", "interval.ms", "match")
            client.alter(CLIENT_METRICS, resource.resource_name, *((name, DELETE, None) for name in settings))


class TelemetryClient(Client):
    """A client with an id of its own, so that a subscription can select it."""

    def __init__(self, address):
        self.name = unique("telemetry-client")
        super().__init__(address, client_id=self.name)
        software = {"client_software_name": "raw", "client_software_version": "1.0"}
        assert self.ask(Api.API_VERSIONS, 3, **software).error_code == 0

    def subscribe(self, metrics="*", interval_ms=100, name=None):
        """Makes the broker ask this client for metrics. Returns the name of the subscription."""
        name = name or unique("subscription")
        changes = {"metrics": metrics, "interval.ms": str(interval_ms), "match": f"client_id={self.name}"}
        answer = self.alter(CLIENT_METRICS, name, *((key, SET, value) for key, value in changes.items()))
        assert answer.error_code == 0, answer
        return name

    def get(self, instance_id=None):
        return self.ask(Api.GET_TELEMETRY_SUBSCRIPTIONS, 0, client_instance_id=instance_id)

    def push(self, subscription, metrics=b"", *, terminating=False, codec=0, subscription_id=None, instance_id=None):
        """Pushes metrics; ``subscription`` is the answer to :meth:`get`. Returns the error code."""
        answer = self.ask(
            Api.PUSH_TELEMETRY,
            0,
            client_instance_id=instance_id or subscription.client_instance_id,
            subscription_id=subscription.subscription_id if subscription_id is None else subscription_id,
            terminating=terminating,
            compression_type=codec,
            metrics=metrics,
        )
        return answer.error_code
