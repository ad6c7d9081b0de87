"""The operations that a client is authorized to do without an authorizer, as bit sets (KIP-430)."""

from headrace.broker.authorization.authorizer import ALL_OPERATIONS
from headrace.security.acls import ResourceType

TOPIC_OPERATIONS = ALL_OPERATIONS[ResourceType.TOPIC]
CLUSTER_OPERATIONS = ALL_OPERATIONS[ResourceType.CLUSTER]
GROUP_OPERATIONS = ALL_OPERATIONS[ResourceType.GROUP]
