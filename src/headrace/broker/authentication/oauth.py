"""Makes the validator of bearer tokens of a listener, from the listener's settings (``configs/oauth_rules.py``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.authentication.key_sets import ProvidedKeys, fetch_file, fetch_http
from headrace.broker.configs.oauth_rules import JWKS_URL
from headrace.broker.configs.sasl_rules import jaas_entry
from headrace.broker.start_error import StartError
from headrace.security.sasl.jwt_validation import JwtValidator
from headrace.security.sasl.mechanism import OAUTHBEARER
from headrace.security.sasl.oauthbearer import OAuthBearerServer, ValidToken
from headrace.security.sasl.unsecured_jws import UnsecuredValidator

if TYPE_CHECKING:
    from ssl import SSLContext

    from headrace.broker.configs.listener_config import ListenerConfig
    from headrace.runtime.clock import Clock


class TokenValidation(NamedTuple):
    validate: Callable[[str], ValidToken]
    #: Whether a validation may have to fetch keys.
    may_block: bool
    #: Reads keys that are in a file. Raises StartError if the file has none.
    prepare: Callable[[], None] = lambda: None

    def start(self) -> OAuthBearerServer:
        return OAuthBearerServer(self.validate, may_block=self.may_block)


def token_validation(settings: ListenerConfig, clock: Clock) -> TokenValidation:
    """Makes the validation that the settings of OAUTHBEARER on a listener ask for. They were checked before."""
    entry = jaas_entry(settings, OAUTHBEARER)
    options = {} if entry is None else entry.options
    unsecured = UnsecuredValidator.from_options(options)
    if unsecured is not None:
        return TokenValidation(lambda token: unsecured.validate(token, clock.wall_ms()), may_block=False)
    keys = _provided_keys(settings, options, clock)
    validator = JwtValidator(
        keys.with_key,
        audiences=frozenset(settings.list("sasl.oauthbearer.expected.audience")),
        issuer=settings.optional_str("sasl.oauthbearer.expected.issuer") or None,
        skew_ms=settings.int("sasl.oauthbearer.clock.skew.seconds") * 1000,
        scope_claim=settings.str("sasl.oauthbearer.scope.claim.name"),
        principal_claim=settings.str("sasl.oauthbearer.sub.claim.name"),
    )
    is_file = settings.str(JWKS_URL).startswith("file:")
    return TokenValidation(
        lambda token: validator.validate(token, clock.wall_ms()),
        may_block=True,
        prepare=(lambda: _read_file(keys, settings)) if is_file else lambda: None,
    )


def _read_file(keys: ProvidedKeys, settings: ListenerConfig) -> None:
    keys.refresh()
    if not keys.has_keys:
        raise StartError(f"{settings.name_of(JWKS_URL)}: {settings.str(JWKS_URL)} is not a file with keys for tokens")


def _provided_keys(settings: ListenerConfig, options: Mapping[str, str], clock: Clock) -> ProvidedKeys:
    url = settings.str(JWKS_URL)
    tls = _tls_of(options)
    fetch = (lambda: fetch_file(url)) if url.startswith("file:") else (lambda: fetch_http(url, tls))
    return ProvidedKeys(
        url,
        clock,
        refresh_ms=settings.int("sasl.oauthbearer.jwks.endpoint.refresh.ms"),
        backoff_ms=settings.int("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
        max_backoff_ms=settings.int("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
        fetch=fetch,
    )


def _tls_of(options: Mapping[str, str]) -> SSLContext | None:
    """Returns the trust of the JAAS line's ``ssl.`` options, as in Kafka; None for the trust of the system."""
    if not any(name.startswith("ssl.") for name in options):
        return None
    from headrace.security.tls import TlsOptions, client_context

    return client_context(TlsOptions.from_settings(options))
