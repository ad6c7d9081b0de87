"""Tokens without a signature, for development only: anybody can write one, for any user.

A listener accepts them only if its JAAS line has an option of Kafka's unsecured validator, so that nobody gets them by
forgetting a setting::

    OAuthBearerLoginModule required unsecuredValidatorAllowableClockSkewMs="3000";

======================================  ============================================
unsecuredValidatorPrincipalClaimName    the claim with the user's name; sub
unsecuredValidatorScopeClaimName        the claim with the scopes; scope
unsecuredValidatorRequiredScope         scopes that a token must have; none
unsecuredValidatorAllowableClockSkewMs  how much the clocks may differ; 0
======================================  ============================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.properties import ConfigError
from headrace.security.sasl.oauthbearer import TokenRefused, ValidToken
from headrace.security.sasl.token_claims import check_scopes, check_times, decode_part, scopes, text

_PREFIX = "unsecuredValidator"


@dataclass(frozen=True, slots=True)
class UnsecuredValidator:
    principal_claim: str = "sub"
    scope_claim: str = "scope"
    required_scopes: frozenset[str] = frozenset()
    skew_ms: int = 0

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> UnsecuredValidator | None:
        """Makes the validator that the options of a JAAS line ask for; None if they do not ask for one.

        :raises ConfigError: if an option has an invalid value, or is unknown.
        """
        given = {name.removeprefix(_PREFIX): value for name, value in options.items() if name.startswith(_PREFIX)}
        if not given:
            return None
        unknown = given.keys() - {"PrincipalClaimName", "ScopeClaimName", "RequiredScope", "AllowableClockSkewMs"}
        if unknown:
            raise ConfigError(f"{_PREFIX}{min(unknown)} is not an option of the unsecured validator")
        skew_ms = given.get("AllowableClockSkewMs", "0")
        if not (skew_ms.isascii() and skew_ms.isdigit() and len(skew_ms) < 10):
            raise ConfigError(f"{_PREFIX}AllowableClockSkewMs has to be a number of milliseconds")
        return cls(
            given.get("PrincipalClaimName") or "sub",
            given.get("ScopeClaimName") or "scope",
            frozenset(given.get("RequiredScope", "").split()),
            int(skew_ms),
        )

    def validate(self, token: str, now_ms: int) -> ValidToken:
        """
        :raises TokenRefused: if the token is not valid, or has a signature that nobody would check.
        """
        parts = token.split(".")
        if len(parts) != 3 or parts[2]:
            raise TokenRefused("an unsecured token has a header, claims, and no signature")
        if decode_part(parts[0]).get("alg") != "none":
            raise TokenRefused("the algorithm of an unsecured token has to be none")
        claims = decode_part(parts[1])
        expires_at_ms = check_times(claims, now_ms, self.skew_ms, needs_issued_at=False)
        check_scopes(scopes(claims, self.scope_claim), self.required_scopes)
        return ValidToken(text(claims, self.principal_claim), expires_at_ms)
