"""Lists the settings of TLS, SASL, ACLs and delegation tokens."""

from headrace.broker.configs.checks import at_least, items, one_of, principals
from headrace.broker.configs.keys import (
    BOOLEAN,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    PASSWORD,
    PER_BROKER,
    READ_ONLY,
    STRING,
    ConfigKey,
)

#: The authorizers of Kafka, for which Headrace has its own.
KAFKA_AUTHORIZERS = (
    "kafka.security.authorizer.AclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
)

# One setting is two or three lines: what it is, then what it does.
# fmt: off
KEYS: tuple[ConfigKey, ...] = (
    ConfigKey("security.inter.broker.protocol", STRING,
        "PLAINTEXT",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), MEDIUM, READ_ONLY,
        "The security protocol between brokers, if inter.broker.listener.name is not set."),
    ConfigKey("authorizer.class.name", STRING, "", one_of("", *KAFKA_AUTHORIZERS), LOW, READ_ONLY,
        "The class that checks ACLs. Empty: every client may do everything. A name of one of Kafka's authorizers: the "
        "built-in authorizer."),
    ConfigKey("super.users", STRING, "", principals(), MEDIUM, READ_ONLY,
        "Principals that may do everything: User:name, separated by semicolons."),
    ConfigKey("allow.everyone.if.no.acl.found", BOOLEAN, False, None, MEDIUM, READ_ONLY,
        "Whether every client may use a resource that has no ACL."),
    ConfigKey("ssl.client.auth", STRING, "none", one_of("required", "requested", "none"), MEDIUM, PER_BROKER,
        "Whether clients must send a certificate: required, requested or none."),
    ConfigKey("ssl.protocol", STRING, "TLSv1.3", None, MEDIUM, PER_BROKER,
        "The newest TLS version to use."),
    ConfigKey("ssl.enabled.protocols", LIST, ("TLSv1.2", "TLSv1.3"), items(), MEDIUM, PER_BROKER,
        "The accepted TLS versions."),
    ConfigKey("ssl.cipher.suites", LIST, (), items(), MEDIUM, PER_BROKER,
        "The accepted cipher suites. Empty: the defaults of OpenSSL."),
    ConfigKey("ssl.keystore.type", STRING, "JKS", None, MEDIUM, PER_BROKER,
        "Format of the key store: PEM, PKCS12 or JKS."),
    ConfigKey("ssl.keystore.location", STRING, None, None, MEDIUM, PER_BROKER,
        "File with the broker's key and certificate."),
    ConfigKey("ssl.keystore.password", PASSWORD, None, None, MEDIUM, PER_BROKER,
        "Password of the key store."),
    ConfigKey("ssl.key.password", PASSWORD, None, None, MEDIUM, PER_BROKER,
        "Password of the key."),
    ConfigKey("ssl.keystore.key", PASSWORD, None, None, MEDIUM, PER_BROKER,
        "The key itself, as PEM text, instead of a file."),
    ConfigKey("ssl.keystore.certificate.chain", PASSWORD, None, None, MEDIUM, PER_BROKER,
        "The certificate chain itself, as PEM text, instead of a file."),
    ConfigKey("ssl.truststore.type", STRING, "JKS", None, MEDIUM, PER_BROKER,
        "Format of the trust store: PEM, PKCS12 or JKS."),
    ConfigKey("ssl.truststore.location", STRING, None, None, MEDIUM, PER_BROKER,
        "File with the certificates that the certificates of peers are checked against."),
    ConfigKey("ssl.truststore.password", PASSWORD, None, None, MEDIUM, PER_BROKER,
        "Password of the trust store."),
    ConfigKey("ssl.truststore.certificates", PASSWORD, None, None, MEDIUM, PER_BROKER,
        "The trusted certificates themselves, as PEM text, instead of a file."),
    ConfigKey("ssl.endpoint.identification.algorithm", STRING, "https", None, LOW, PER_BROKER,
        "https: check that the certificate of a broker names its host. Empty: no check."),
    ConfigKey("ssl.principal.mapping.rules", STRING, "DEFAULT", None, LOW, READ_ONLY,
        "Rules that turn a certificate's distinguished name into a user name."),
    ConfigKey("sasl.enabled.mechanisms", LIST, ("GSSAPI",), items(), MEDIUM, PER_BROKER,
        "The SASL mechanisms of a listener: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512. GSSAPI, the default of Kafka, is not "
        "supported: a listener with SASL needs a value."),
    ConfigKey("sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI", None, MEDIUM, PER_BROKER,
        "The SASL mechanism with which brokers log in to each other."),
    ConfigKey("sasl.jaas.config", PASSWORD, None, None, MEDIUM, PER_BROKER,
        "Users and passwords of a mechanism, in JAAS form. The name usually has a listener and mechanism prefix: "
        "listener.name.NAME.plain.sasl.jaas.config."),
    ConfigKey("sasl.server.max.receive.size", INT, 524_288, None, MEDIUM, READ_ONLY,
        "The maximum size in bytes of a request before login."),
    ConfigKey("connections.max.reauth.ms", LONG, 0, None, MEDIUM, READ_ONLY,
        "A client must log in again after this time in milliseconds; 0: never (KIP-368). It may have a listener and "
        "mechanism prefix."),
    ConfigKey("delegation.token.secret.key", PASSWORD, None, None, MEDIUM, READ_ONLY,
        "The secret that signs delegation tokens; the same on all brokers. Unset: there are no tokens."),
    ConfigKey("delegation.token.master.key", PASSWORD, None, None, MEDIUM, READ_ONLY,
        "The older name of delegation.token.secret.key."),
    ConfigKey("delegation.token.max.lifetime.ms", LONG, 604_800_000, at_least(1), MEDIUM, READ_ONLY,
        "The maximum lifetime of a delegation token, renewals included."),
    ConfigKey("delegation.token.expiry.time.ms", LONG, 86_400_000, at_least(1), MEDIUM, READ_ONLY,
        "How long a delegation token is valid without renewal."),
    ConfigKey("delegation.token.expiry.check.interval.ms", LONG, 3_600_000, at_least(1), LOW, READ_ONLY,
        "How often the broker checks for expired delegation tokens."),
)
# fmt: on
