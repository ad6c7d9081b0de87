"""Chooses the authorizer of a broker by ``authorizer.class.name``, and starts it.

No class is loaded by name: the names of Kafka's two authorizers stand for the one of Headrace, which stores its rules
where Kafka's AclAuthorizer stored them. A broker with any other class does not start.
"""

from __future__ import annotations

from collections.abc import Sequence
from logging import getLogger
from typing import TYPE_CHECKING

from headrace.broker.authorization.authorizer import AllowAll
from headrace.broker.configs.checks import split_principals
from headrace.broker.configs.listeners import SecurityProtocol
from headrace.broker.configs.table_security import KAFKA_AUTHORIZERS
from headrace.broker.start_error import StartError
from headrace.security.principal import ANONYMOUS

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.authorization.stored_rules import StoredRules
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.coordination.interface import Coordination
    from headrace.runtime.clock import Clock
    from headrace.security.principal import Principal

logger = getLogger(__name__)


class RunningAuthorizer:
    """The authorizer of a broker, and what keeps its rules up to date."""

    def __init__(self, authorizer: Authorizer, stored: StoredRules | None = None) -> None:
        self.authorizer = authorizer
        self._stored = stored

    async def stop(self) -> None:
        if self._stored is not None:
            await self._stored.stop()


async def start_authorizer(config: BrokerConfig, coordination: Coordination, clock: Clock) -> RunningAuthorizer:
    """Returns the authorizer that the settings ask for, with all rules that the tree has.

    :raises StartError: if the rules cannot be read.
    """
    if not config.str("authorizer.class.name"):
        for name in ("super.users", "allow.everyone.if.no.acl.found"):
            if name in config.static:
                logger.warning("%s has no effect without authorizer.class.name: every client may do everything", name)
        return RunningAuthorizer(AllowAll())
    assert config.str("authorizer.class.name") in KAFKA_AUTHORIZERS, "settings are checked when they are read"
    from headrace.broker.authorization.acl_authorizer import AclAuthorizer
    from headrace.broker.authorization.stored_rules import StoredRules
    from headrace.coordination.interface import CoordinationError
    from headrace.security.acls.rule_index import RuleIndex
    from headrace.security.acls.znodes import MalformedRulesError

    super_users = split_principals(config.str("super.users"))
    _warn_of_brokers_without_rights(config, super_users)
    index = RuleIndex(allow_if_no_rule=config.bool("allow.everyone.if.no.acl.found"))
    authorizer = AclAuthorizer(index, super_users)
    stored = StoredRules(coordination, clock, index, on_changed=authorizer.forget_decisions)
    try:
        await stored.load()
    except (CoordinationError, MalformedRulesError) as error:
        raise StartError(f"the ACLs cannot be read: {error}") from None
    stored.start()
    authorizer.stored = stored
    return RunningAuthorizer(authorizer, stored)


def _warn_of_brokers_without_rights(config: BrokerConfig, super_users: Sequence[Principal]) -> None:
    """Logs a warning if the brokers of a cluster are anonymous to each other, and anonymous clients have no rights."""
    listeners = config.listeners
    is_anonymous = listeners.protocol_of(listeners.inter_broker) is SecurityProtocol.PLAINTEXT
    if config.is_in_cluster and is_anonymous and ANONYMOUS not in super_users:
        logger.warning(
            "brokers have no name at the listener %s (PLAINTEXT), and super.users does not contain %s: without an ACL "
            "for CLUSTER_ACTION they refuse each other's requests. Use SASL or TLS between brokers",
            listeners.inter_broker,
            ANONYMOUS,
        )
