"""Lists the settings of Apache Kafka with which a broker does not start, because Headrace does not implement them.

A broker that accepted and ignored ``ssl.keystore.location`` or ``authorizer.class.name`` would look protected, but
would not be protected. So a broker refuses such a setting (``refusals.py``), unless its value asks for no protection.

A row is a setting, or the prefix of settings if its name ends with a dot. The row with the longest name counts. The row
has the values that ask for no protection; an empty value never asks for protection. A row also applies to settings with
a listener's prefix (``listener.name.internal.ssl.keystore.location``).

Settings that are not in this table, although their names suggest it:

* ``max.connections``, ``max.connections.per.ip`` and its overrides, ``max.connection.creation.rate``,
  ``*.replication.throttled.rate`` and all ``*quota.window.*`` are in force. So are ``max.connections`` and
  ``max.connection.creation.rate`` of a listener. Kafka 3.0 removed ``quota.producer.default`` and
  ``quota.consumer.default``; the quotas of the default client and the default user replace them.
* ``early.start.listeners`` relaxes an authorizer; it protects nothing.
* ``control.plane.listener.name`` separates kinds of requests, not users.

If you implement one of these features, delete its rows here. No other code decides what is refused.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.broker.configs.keys import MAX_LONG
from headrace.broker.configs.table_security import KAFKA_AUTHORIZERS


class Refused(NamedTuple):
    """One row. ``missing`` is the feature, ``accepted`` are the values that ask for no protection, in any case."""

    name: str
    missing: str
    accepted: tuple[str, ...] = ()
    #: Whether the prefix refuses only settings that table_security.py does not have, such as typing errors.
    only_unknown: bool = False


_PRINCIPAL_BUILDER = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"

ROWS: tuple[Refused, ...] = (
    # Kafka replaces ${file:...} in values. Here such a text would itself be the password, and anybody could guess it.
    Refused("config.providers", "values from config providers"),
    Refused("config.providers.", "values from config providers"),
    Refused("security.", "such a security setting", only_unknown=True),
    Refused("ssl.", "such a TLS setting", only_unknown=True),
    Refused("security.providers", "security providers of Java"),
    Refused("ssl.keymanager.algorithm", "key managers of Java", ("SunX509", "PKIX")),
    Refused("ssl.trustmanager.algorithm", "trust managers of Java", ("PKIX",)),
    Refused("ssl.secure.random.implementation", "random numbers of Java"),
    Refused("ssl.provider", "security providers of Java"),
    Refused("ssl.engine.factory.class", "classes that are loaded by name"),
    Refused("sasl.kerberos.", "GSSAPI"),
    Refused("sasl.oauthbearer.client.", "such a setting of client credentials", only_unknown=True),
    Refused("sasl.oauthbearer.assertion.", "assertions (JWT bearer grants) for logins by OAUTHBEARER"),
    Refused("sasl.oauthbearer.jwt.", "classes that are loaded by name", only_unknown=True),
    Refused("sasl.login.class", "classes that are loaded by name"),
    Refused("sasl.client.callback.handler.class", "classes that are loaded by name"),
    Refused("authorizer.", "settings of other authorizers"),
    Refused("authorizer.class.name", "other authorizers than Kafka's own", KAFKA_AUTHORIZERS),
    Refused("principal.builder.class", "principals", (_PRINCIPAL_BUILDER,)),
    Refused("create.topic.policy.", "policies for topics"),
    Refused("alter.config.policy.", "policies for settings"),
    Refused("quota.producer.default", "default quotas in settings", (str(MAX_LONG),)),
    Refused("quota.consumer.default", "default quotas in settings", (str(MAX_LONG),)),
    Refused("client.quota.callback.", "classes that are loaded by name"),
    Refused("zookeeper.sasl.", "settings of ZooKeeper's Java client", ("false",)),
    Refused("zookeeper.ssl.crl.enable", "revoked certificates", ("false",)),
    Refused("zookeeper.ssl.ocsp.enable", "revoked certificates", ("false",)),
    Refused("zookeeper.client.", "settings of ZooKeeper's Java client", ("false",)),
)
