"""Lists the settings of TLS, SASL, ACLs and delegation tokens."""

from headrace.broker.configs.checks import at_least, items, one_of, one_of_numbers, principals
from headrace.broker.configs.keys import (
    BOOLEAN,
    CLASS,
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
from headrace.security.password_encoder import CIPHERS, KEY_FACTORIES, KEY_LENGTHS

#: The authorizers of Kafka, for which Headrace has its own.
KAFKA_AUTHORIZERS = (
    "kafka.security.authorizer.AclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
)

_TOKEN_VALIDATORS, _TOKEN_LOGINS = (
    tuple(f"org.apache.kafka.common.security.oauthbearer.{package}{name}" for package in ("", "secured."))
    for name in ("OAuthBearerValidatorCallbackHandler", "OAuthBearerLoginCallbackHandler")
)

#: The first one is the default. ClientJwtValidator is not here: it checks no signature.
_JWT_VALIDATORS, _JWT_RETRIEVERS = (
    tuple(f"org.apache.kafka.common.security.oauthbearer.{name}" for name in names)
    for names in (
        ("DefaultJwtValidator", "BrokerJwtValidator"),
        ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever"),
    )
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
        "The newest TLS version for connections to other brokers: TLSv1.3 or TLSv1.2. It does not limit clients."),
    ConfigKey("ssl.enabled.protocols", LIST, ("TLSv1.2", "TLSv1.3"), items(), MEDIUM, PER_BROKER,
        "The accepted TLS versions: TLSv1.2, TLSv1.3."),
    ConfigKey("ssl.cipher.suites", LIST, (), items(), MEDIUM, PER_BROKER,
        "The accepted cipher suites, by IANA's names. Empty: the defaults of OpenSSL."),
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
    ConfigKey("ssl.allow.dn.changes", BOOLEAN, False, None, LOW, READ_ONLY,
        "Whether a key store that replaces another at run time may have other distinguished names."),
    ConfigKey("ssl.allow.san.changes", BOOLEAN, False, None, LOW, READ_ONLY,
        "Whether a key store that replaces another at run time may lack subject alternative names of the other."),
    ConfigKey("ssl.keymanager.algorithm", STRING, "SunX509", None, MEDIUM, READ_ONLY,
        "Accepted with Java's values SunX509 and PKIX, without effect: OpenSSL chooses the key."),
    ConfigKey("ssl.trustmanager.algorithm", STRING, "PKIX", None, MEDIUM, READ_ONLY,
        "How certificates are checked. Only PKIX, the default, is supported."),
    ConfigKey("ssl.secure.random.implementation", STRING, None, None, LOW, READ_ONLY,
        "Refused if it is set: OpenSSL makes random numbers."),
    ConfigKey("ssl.provider", STRING, None, None, MEDIUM, READ_ONLY,
        "Refused if it is set: there are no Java providers."),
    ConfigKey("ssl.engine.factory.class", CLASS, None, None, LOW, READ_ONLY,
        "Refused if it is set: no class is loaded by its name."),
    ConfigKey("security.providers", STRING, None, None, LOW, READ_ONLY,
        "Refused if it is set: there are no Java providers."),
    ConfigKey("password.encoder.secret", PASSWORD, None, None, MEDIUM, READ_ONLY,
        "The secret that encrypts dynamic passwords in the znode tree. Unset: passwords cannot change at run time."),
    ConfigKey("password.encoder.old.secret", PASSWORD, None, None, MEDIUM, READ_ONLY,
        "The earlier secret. At the start the broker decrypts dynamic passwords with it, and encrypts them with "
        "password.encoder.secret."),
    ConfigKey("password.encoder.keyfactory.algorithm", STRING, None, one_of(*KEY_FACTORIES), LOW, READ_ONLY,
        "The function that makes a key of the secret. Unset: PBKDF2WithHmacSHA512."),
    ConfigKey("password.encoder.cipher.algorithm", STRING, "AES/CBC/PKCS5Padding", one_of(*CIPHERS), LOW, READ_ONLY,
        "The cipher of dynamic passwords."),
    ConfigKey("password.encoder.key.length", INT, 128, one_of_numbers(*KEY_LENGTHS), LOW, READ_ONLY,
        "The length of the cipher's key, in bits."),
    ConfigKey("password.encoder.iterations", INT, 4096, at_least(1024), LOW, READ_ONLY,
        "How often the function of the key is applied."),
    ConfigKey("sasl.enabled.mechanisms", LIST, ("GSSAPI",), items(), MEDIUM, PER_BROKER,
        "The SASL mechanisms of a listener: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. GSSAPI, the default of "
        "Kafka, is not supported: a listener with SASL needs a value."),
    ConfigKey("sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI", None, MEDIUM, PER_BROKER,
        "The SASL mechanism with which brokers log in to each other."),
    ConfigKey("sasl.jaas.config", PASSWORD, None, None, MEDIUM, PER_BROKER,
        "Users and passwords of a mechanism, in JAAS form. The name usually has a listener and mechanism prefix: "
        "listener.name.NAME.plain.sasl.jaas.config."),
    ConfigKey("sasl.server.callback.handler.class", CLASS, None, one_of(*_TOKEN_VALIDATORS), MEDIUM, READ_ONLY,
        "For OAUTHBEARER, the name of Kafka's own validator of signed tokens, which is what Headrace does. No class is "
        "loaded by name."),
    ConfigKey("sasl.oauthbearer.jwks.endpoint.url", STRING, None, None, MEDIUM, READ_ONLY,
        "Where the keys are that sign the tokens of OAUTHBEARER: an https or file URL, or "
        "an http URL of a loopback address. org.apache.kafka.sasl.oauthbearer.allowed.urls must have it, too."),
    ConfigKey("sasl.oauthbearer.jwt.validator.class", CLASS, _JWT_VALIDATORS[0], one_of(*_JWT_VALIDATORS), MEDIUM,
        READ_ONLY,
        "The name of Kafka's own check of signed tokens, which is what Headrace does. No class is loaded by name."),
    ConfigKey("sasl.oauthbearer.jwt.retriever.class", CLASS, _JWT_RETRIEVERS[0], one_of(*_JWT_RETRIEVERS), MEDIUM,
        READ_ONLY,
        "The name of Kafka's own way to get tokens for other brokers, by sasl.oauthbearer.token.endpoint.url. No class "
        "is loaded by name."),
    ConfigKey("org.apache.kafka.sasl.oauthbearer.allowed.urls", LIST, (), items(), MEDIUM, READ_ONLY,
        "The URLs from which a broker may read keys and tokens for OAUTHBEARER. Kafka has it as a property of the Java "
        "process. The environment variable ORG_APACHE_KAFKA_SASL_OAUTHBEARER_ALLOWED_URLS adds to it."),
    ConfigKey("sasl.oauthbearer.expected.audience", LIST, (), items(), LOW, READ_ONLY,
        "A token must be for one of these audiences. Unset: the audience is not checked."),
    ConfigKey("sasl.oauthbearer.expected.issuer", STRING, None, None, LOW, READ_ONLY,
        "A token must have this issuer. Unset: the issuer is not checked."),
    ConfigKey("sasl.oauthbearer.clock.skew.seconds", INT, 30, at_least(0), LOW, READ_ONLY,
        "How much the clocks of the broker and of the provider may differ, in seconds."),
    ConfigKey("sasl.oauthbearer.scope.claim.name", STRING, "scope", None, LOW, READ_ONLY,
        "The claim that has the scopes of a token."),
    ConfigKey("sasl.oauthbearer.sub.claim.name", STRING, "sub", None, LOW, READ_ONLY,
        "The claim that has the name of the user."),
    ConfigKey("sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, 3_600_000, at_least(1), LOW, READ_ONLY,
        "The keys are read again after this time in milliseconds, and when a token names an unknown key."),
    ConfigKey("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, 100, at_least(0), LOW, READ_ONLY,
        "How long a broker waits after it could not read the keys; twice as long after each further failure."),
    ConfigKey("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, 10_000, at_least(0), LOW, READ_ONLY,
        "The longest such wait."),
    ConfigKey("sasl.login.callback.handler.class", CLASS, None, one_of(*_TOKEN_LOGINS), MEDIUM, READ_ONLY,
        "For OAUTHBEARER between brokers, the name of Kafka's own login by sasl.oauthbearer.token.endpoint.url. It "
        "needs that URL. No class is loaded by name."),
    ConfigKey("sasl.oauthbearer.token.endpoint.url", STRING, None, None, MEDIUM, READ_ONLY,
        "For OAUTHBEARER between brokers: where a broker gets its tokens by client credentials, or file:/PATH, a file "
        "with a token. org.apache.kafka.sasl.oauthbearer.allowed.urls must have it, too."),
    ConfigKey("sasl.oauthbearer.client.credentials.client.id", STRING, None, None, MEDIUM, READ_ONLY,
        "The id for client credentials, instead of clientId in the JAAS line."),
    ConfigKey("sasl.oauthbearer.client.credentials.client.secret", PASSWORD, None, None, MEDIUM, READ_ONLY,
        "The secret for client credentials, instead of clientSecret in the JAAS line."),
    ConfigKey("sasl.oauthbearer.scope", STRING, None, None, MEDIUM, READ_ONLY,
        "The scope to ask for with client credentials, instead of scope in the JAAS line."),
    ConfigKey("sasl.oauthbearer.header.urlencode", BOOLEAN, False, None, LOW, READ_ONLY,
        "Whether client id and secret are encoded for URLs before they are sent, as RFC 6749 says."),
    ConfigKey("sasl.login.connect.timeout.ms", INT, None, at_least(1), LOW, READ_ONLY,
        "How long connecting to the token endpoint may take. Unset: 10 seconds."),
    ConfigKey("sasl.login.read.timeout.ms", INT, None, at_least(1), LOW, READ_ONLY,
        "How long the token endpoint may take to answer. Unset: 10 seconds."),
    ConfigKey("sasl.login.retry.backoff.ms", LONG, 100, at_least(0), LOW, READ_ONLY,
        "How long a broker waits before it asks the token endpoint again after a failure."),
    ConfigKey("sasl.login.retry.backoff.max.ms", LONG, 10_000, at_least(0), LOW, READ_ONLY,
        "The longest such wait."),
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

#: The settings that a listener may have with its prefix, if it is added at run time. They are fixed afterwards,
#: except key and trust stores.
OF_NEW_LISTENERS = frozenset(
    key.name
    for key in KEYS
    if key.name.startswith(("ssl.", "sasl.", "connections."))
    and key.name
    not in {
        "ssl.allow.dn.changes",
        "ssl.allow.san.changes",
        "ssl.engine.factory.class",
        "ssl.keymanager.algorithm",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    }
) | {"connection.failed.authentication.delay.ms"}

#: The settings of key and trust stores. A listener may change them while the broker runs.
STORE_SETTINGS = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
