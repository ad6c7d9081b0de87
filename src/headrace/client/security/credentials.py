"""Makes a client's credentials from its options: what a mechanism needs to log in.

``sasl.jaas.config`` is a line as Kafka's clients have it. ``sasl.username`` and ``sasl.password`` (librdkafka's names),
or ``sasl_plain_username`` and ``sasl_plain_password`` (kafka-python's names), say the same without the line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.properties import ConfigError
from headrace.security.sasl.jaas import jaas_for
from headrace.security.sasl.mechanism import MECHANISMS, OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512

if TYPE_CHECKING:
    from headrace.client.security.connection_security import Credentials
    from headrace.client.security.options import SecurityOptions
    from headrace.security.sasl.mechanism import ClientMechanism

_USERNAME, _PASSWORD, _IS_TOKEN = "username", "password", "tokenauth"


@dataclass(frozen=True)
class PasswordCredentials:
    """A user with a password, for PLAIN and SCRAM.

    :param is_token: the user is the id of a delegation token, the password is its HMAC.
    """

    mechanism: str
    username: str
    password: str = field(repr=False)
    is_token: bool = False

    async def begin(self) -> ClientMechanism:
        if self.mechanism == PLAIN:
            from headrace.security.sasl.plain import PlainClient

            return PlainClient(self.username, self.password)
        from headrace.security.sasl.scram_client import ScramClient

        return ScramClient(self.mechanism, self.username, self.password, is_token=self.is_token)


def credentials_of(options: SecurityOptions) -> Credentials:
    """
    :raises ConfigError: if the mechanism does not exist here, or what it needs is missing. The message has no secrets.
    """
    if options.sasl_mechanism is None:
        raise ConfigError(
            f"sasl.mechanism is missing: {options.security_protocol} needs one of {', '.join(MECHANISMS)}"
        )
    mechanism = options.sasl_mechanism.strip().upper()
    if mechanism not in _MAKERS:
        raise ConfigError(f"sasl.mechanism = {options.sasl_mechanism!r}: there are {', '.join(MECHANISMS)}")
    return _MAKERS[mechanism](options, mechanism)


def _password(options: SecurityOptions, mechanism: str) -> Credentials:
    if options.sasl_jaas_config is not None:
        return jaas_credentials(options.sasl_jaas_config, mechanism)
    username = options.sasl_username or options.sasl_plain_username
    password = options.sasl_password or options.sasl_plain_password
    if username is None or password is None:
        raise ConfigError(
            f"{mechanism} needs a user and a password: set sasl.jaas.config, or sasl.username and sasl.password"
        )
    return PasswordCredentials(mechanism, username, password)


def jaas_credentials(line: str, mechanism: str, setting: str = "sasl.jaas.config") -> PasswordCredentials:
    """The credentials of PLAIN or SCRAM in a JAAS line.

    :raises ConfigError: if the line does not have them.
    """
    entry = jaas_for(line, mechanism, setting)
    missing = [name for name in (_USERNAME, _PASSWORD) if name not in entry.options]
    if missing:
        raise ConfigError(f"{setting} has no {' and no '.join(missing)}, which {mechanism} needs")
    return PasswordCredentials(
        mechanism,
        entry.options[_USERNAME],
        entry.options[_PASSWORD],
        is_token=entry.options.get(_IS_TOKEN, "").strip().lower() == "true",
    )


def _oauth(options: SecurityOptions, mechanism: str) -> Credentials:  # noqa: ARG001  as all makers
    from headrace.client.security.oauth_tokens import token_credentials

    return token_credentials(options)


_MAKERS: dict[str, Callable[[SecurityOptions, str], Credentials]] = {
    PLAIN: _password,
    SCRAM_SHA_256: _password,
    SCRAM_SHA_512: _password,
    OAUTHBEARER: _oauth,
}
