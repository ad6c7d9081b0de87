"""The values of the ``ssl.*`` settings, under Kafka's names and with Kafka's defaults.

A field of :class:`TlsOptions` is a setting: ``keystore_location`` is ``ssl.keystore.location``. Fields that hold
secrets do not appear in ``repr``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

TLS_1_2, TLS_1_3 = "TLSv1.2", "TLSv1.3"


def _secret() -> str | None:
    value: str | None = field(default=None, repr=False)
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """The settings of one side of TLS connections. :meth:`from_settings` makes it from settings."""

    protocol: str = TLS_1_3
    enabled_protocols: tuple[str, ...] = (TLS_1_2, TLS_1_3)
    cipher_suites: tuple[str, ...] = ()
    keystore_type: str = "JKS"
    keystore_location: str | None = None
    keystore_password: str | None = _secret()
    key_password: str | None = _secret()
    keystore_key: str | None = _secret()
    keystore_certificate_chain: str | None = _secret()
    truststore_type: str = "JKS"
    truststore_location: str | None = None
    truststore_password: str | None = _secret()
    truststore_certificates: str | None = _secret()
    #: Used by clients only: ``https`` checks that the server's certificate names the server's host.
    endpoint_identification_algorithm: str = "https"
    #: Used by servers only: ``required``, ``requested`` or ``none``.
    client_auth: str = "none"

    @classmethod
    def from_settings(cls, settings: Mapping[str, object]) -> TlsOptions:
        """Takes the values of ``ssl.*`` names. A missing name, or None, has the default. A list may be one text."""
        given = {}
        for each in fields(cls):
            value = settings.get(setting_name(each.name))
            if value is not None:
                given[each.name] = _items(value) if each.name in _LISTS else str(value)
        return cls(**given)  # type: ignore[arg-type]


def setting_name(field_name: str) -> str:
    """Returns Kafka's name of a field."""
    return "ssl." + field_name.replace("_", ".")


def _items(value: object) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    assert isinstance(items, list | tuple)
    return tuple(stripped for item in items if (stripped := str(item).strip()))


_LISTS = frozenset({"enabled_protocols", "cipher_suites"})
#: Kafka's names of all settings that :class:`TlsOptions` holds.
SETTING_NAMES = tuple(setting_name(each.name) for each in fields(TlsOptions))
