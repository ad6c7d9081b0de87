"""A broker with ACLs whose anonymous client may do everything or nothing, as a test wants, and short words for rules.

The client is anonymous, so the broker's super user is ``User:ANONYMOUS`` until a test takes that away.
"""

from contextlib import contextmanager

from broker_harness import on_loop

from headrace import Broker
from headrace.security.principal import ANONYMOUS

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ANYONE = "User:ANONYMOUS"
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 2, 3, 4, 5, 6, 7, 8
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 9, 10, 11, 12
DENY, ALLOW = 2, 3


def acl_broker(**config):
    settings = {"authorizer.class.name": AUTHORIZER, "super.users": ANYONE, "group.initial.rebalance.delay.ms": "0"}
    return Broker(config={**settings, **{name.replace("_", "."): value for name, value in config.items()}})


@contextmanager
def without_rights(broker):
    """The anonymous client is no super user meanwhile."""
    authorizer = broker.core.services.authorizer

    def set_super_users(users):
        authorizer._super_users = frozenset(users)
        authorizer.forget_decisions()

    on_loop(broker, set_super_users, ())
    try:
        yield
    finally:
        on_loop(broker, set_super_users, (ANONYMOUS,))


def rule(kind, name, operation, permission=ALLOW, *, principal=ANYONE, host="*", pattern=LITERAL):
    """The fields of a CreateAcls request."""
    return {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": pattern,
        "principal": principal,
        "host": host,
        "operation": operation,
        "permission_type": permission,
    }


def acl_filter(kind=ANY, name=None, pattern=ANY, *, principal=None, host=None, operation=ANY, permission=ANY):
    """The fields of a DescribeAcls request, or of a filter of DeleteAcls."""
    return {
        "resource_type_filter": kind,
        "resource_name_filter": name,
        "pattern_type_filter": pattern,
        "principal_filter": principal,
        "host_filter": host,
        "operation": operation,
        "permission_type": permission,
    }
