"""Makes the membership that ``group.protocol`` asks for."""

from headrace.client.cluster import Cluster
from headrace.client.config import ConsumerConfig
from headrace.client.membership.classic import ClassicMembership
from headrace.client.membership.consumer import ConsumerMembership
from headrace.client.membership.group_metrics import GroupMetrics
from headrace.client.membership.interfaces import GroupSubscription, Membership


def new_membership(
    cluster: Cluster, config: ConsumerConfig, subscription: GroupSubscription, metrics: GroupMetrics
) -> Membership:
    """
    :raises ValueError: if ``partition.assignment.strategy`` has an unknown assignor.
    """
    make = ConsumerMembership if config.group_protocol == "consumer" else ClassicMembership
    return make(cluster, config, subscription, metrics)
