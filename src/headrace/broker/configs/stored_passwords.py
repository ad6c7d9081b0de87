"""Dynamic passwords of a broker: encrypted in the znode tree, plain in memory.

Only the settings of a single broker may have passwords (KIP-226). They are encrypted with ``password.encoder.secret``,
so a reader of the tree does not learn them; without the secret a broker refuses to store a password. A stored
password that cannot be decrypted is ignored, with an error in the log, as in Kafka.

After a change of the secret, ``password.encoder.old.secret`` is the earlier one. The broker then stores the passwords
again at its start, encrypted with the new secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from logging import getLogger
from typing import TYPE_CHECKING

from headrace.broker.configs.keys import PASSWORD, Update
from headrace.broker.configs.registry import BROKER_KEYS
from headrace.protocol.errors import InvalidRequest
from headrace.security.password_encoder import DEFAULT_KEY_FACTORY, PasswordEncoder, PasswordNotDecoded

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig

logger = getLogger(__name__)

_PASSWORDS = tuple(
    name for name, key in BROKER_KEYS.items() if key.type is PASSWORD and key.update is not Update.READ_ONLY
)


def is_password(name: str) -> bool:
    """Whether a dynamic setting is a password, with or without the prefixes of a listener and a mechanism."""
    return name.endswith(_PASSWORDS)


class StoredPasswords:
    """Converts the settings of a broker between memory and tree."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config

    def encrypted(self, configs: Mapping[str, str], *, per_broker: bool) -> dict[str, str]:
        """Returns settings as the tree stores them.

        :raises InvalidRequest: if a password is among them, and this broker has no secret.
        """
        names = [name for name in configs if is_password(name)]
        if not names:
            return dict(configs)
        if not per_broker:
            raise InvalidRequest(f"Passwords cannot be set for the whole cluster, name a broker: {', '.join(names)}")
        encoder = self._encoder("password.encoder.secret")
        if encoder is None:
            raise InvalidRequest(
                f"Password encoder secret not configured: the broker needs password.encoder.secret to store "
                f"{', '.join(names)}"
            )
        return {name: encoder.encode(text) if is_password(name) else text for name, text in configs.items()}

    def decrypted(self, stored: Mapping[str, str]) -> dict[str, str]:
        """Returns settings of the tree, without the passwords that cannot be decrypted."""
        return {
            name: plain
            for name, text in stored.items()
            if (plain := self._decrypted(name, text) if is_password(name) else text) is not None
        }

    def encrypted_again(self, stored: Mapping[str, str]) -> dict[str, str] | None:
        """Returns settings of the tree with the new secret in place of the old one; None if nothing is to change."""
        old, new = self._encoder("password.encoder.old.secret"), self._encoder("password.encoder.secret")
        if old is None or new is None:
            return None
        changed: dict[str, str] = {}
        for name, text in stored.items():
            if is_password(name):
                try:
                    changed[name] = new.encode(old.decode(text))
                except PasswordNotDecoded:
                    continue  # the new secret is in use already
        return {**stored, **changed} if changed else None

    def _decrypted(self, name: str, text: str) -> str | None:
        encoder = self._encoder("password.encoder.secret")
        if encoder is None:
            logger.error("the stored password %s is ignored: password.encoder.secret is not set", name)
            return None
        try:
            return encoder.decode(text)
        except PasswordNotDecoded as error:
            logger.error("the stored password %s is ignored, because it cannot be decrypted: %s", name, error)
            return None

    def _encoder(self, secret_name: str) -> PasswordEncoder | None:
        config = self._config
        secret = config.optional_str(secret_name)
        if secret is None:
            return None
        return PasswordEncoder(
            secret,
            config.optional_str("password.encoder.keyfactory.algorithm") or DEFAULT_KEY_FACTORY,
            config.str("password.encoder.cipher.algorithm"),
            config.int("password.encoder.key.length"),
            config.int("password.encoder.iterations"),
        )
