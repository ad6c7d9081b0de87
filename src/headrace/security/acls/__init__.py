"""Kafka's access control lists: what a rule says, which rules match, and how ZooKeeper stores rules. No I/O.

A rule (:class:`~headrace.security.acls.bindings.AclBinding`) allows or denies one operation on the resources that fit a
pattern, to one principal from one host. ``rule_index.py`` decides about a request by all rules.
"""

from headrace.security.acls.bindings import AclBinding, AclFilter
from headrace.security.acls.kinds import (
    CLUSTER_NAME,
    WILDCARD,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)

__all__ = [
    "CLUSTER_NAME",
    "WILDCARD",
    "AclBinding",
    "AclFilter",
    "AclOperation",
    "PatternType",
    "Permission",
    "ResourceType",
]
