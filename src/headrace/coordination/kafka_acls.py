"""The access control lists that Kafka gives to its znodes, if ``zookeeper.set.acl`` is true.

The creator may do everything, and others may read. Others may not read what holds secrets: the settings of users (SCRAM
credentials) and of brokers (passwords), delegation tokens, and the secret that makes salts for unknown users.
``/consumers`` stays open, because old consumers write there themselves. As in Kafka, everybody may read the ACLs of
topics and groups (``/kafka-acl``).
"""

from headrace.coordination.acls import CREATOR_ALL, OPEN_ACL, READ_BY_ALL, Acl
from headrace.coordination.paths import SASL_SECRET

#: A path is secret if it begins with one of these.
SECRET_ROOTS = ("/config/users", "/config/brokers", "/delegation_token/tokens", SASL_SECRET)
_OPEN = "/consumers"
_READABLE: Acl = (CREATOR_ALL, READ_BY_ALL)
_SECRET: Acl = (CREATOR_ALL,)


def kafka_acl(path: str) -> Acl:
    """The list for a new znode. ``path`` is the path below the chroot."""
    if path == _OPEN:
        return OPEN_ACL
    return _SECRET if path.startswith(SECRET_ROOTS) else _READABLE
