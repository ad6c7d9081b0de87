"""The principal of a client that has shown a certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.security.principal import ANONYMOUS, USER, Principal
from headrace.security.tls.names import certificate_subject

if TYPE_CHECKING:
    from headrace.security.tls.mapping_rules import MappingRules


def certificate_principal(certificate: bytes | None, rules: MappingRules) -> Principal:
    """Returns the user of a certificate (DER); the anonymous user if the client has shown none.

    :raises ValueError: if the subject cannot be read, or no rule applies to it. The connection must end then.
    """
    if not certificate:
        return ANONYMOUS
    return Principal(USER, rules.user_name(certificate_subject(certificate)))
