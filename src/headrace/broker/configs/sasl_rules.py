"""Checks the SASL settings of all listeners, before a broker starts and before a change is accepted.

A listener with SASL is refused if nobody could log in, or anybody: an unknown mechanism, a JAAS line that is malformed
or belongs to another mechanism, PLAIN without users, OAUTHBEARER without a way to verify tokens.

``listener.name.NAME.MECHANISM.sasl.jaas.config`` is the JAAS line of a mechanism. ``sasl.jaas.config`` alone counts for
the mechanisms of its login module, if they have no line of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from headrace.broker.configs.listeners import Listeners
from headrace.properties import ConfigError
from headrace.security.sasl.jaas import JaasEntry, jaas_for, parse_jaas
from headrace.security.sasl.mechanism import MECHANISMS, OAUTHBEARER, PLAIN

if TYPE_CHECKING:
    from headrace.broker.configs.listener_config import ListenerConfig

_ENABLED = "sasl.enabled.mechanisms"
_BETWEEN_BROKERS = "sasl.mechanism.inter.broker.protocol"
_JAAS = "sasl.jaas.config"
#: The mechanisms that a listener may have.
SERVED = MECHANISMS


class Settings(Protocol):
    """Gives the settings of a listener, and of a mechanism on the listener."""

    def __call__(self, listener: str, mechanism: str | None = None) -> ListenerConfig: ...


def enabled_mechanisms(settings: ListenerConfig) -> Sequence[str]:
    return settings.list(_ENABLED)


def link_mechanism(settings: ListenerConfig) -> str:
    """Returns the mechanism by which brokers log in to each other."""
    return settings.str(_BETWEEN_BROKERS)


def jaas_entry(settings: ListenerConfig, mechanism: str) -> JaasEntry | None:
    """Returns the JAAS line of a mechanism, given the settings of that mechanism. None if there is none.

    :raises ConfigError: if the line is malformed, or the line of the mechanism is another mechanism's.
    """
    name = settings.name_of(_JAAS)
    line = settings.optional_str(_JAAS)
    if line is None:
        return None
    if name != _JAAS:
        return jaas_for(line, mechanism, name)
    entry = parse_jaas(line)
    return entry if mechanism in entry.mechanisms else None


def sasl_problems(listeners: Listeners, settings: Settings, *, is_in_cluster: bool) -> Iterator[str]:
    """Yields one line per mistake. The lines show no secrets."""
    for listener in listeners.bound:
        if not listener.protocol.has_sasl:
            continue
        yield from _listener_problems(listener.name, settings)
        if is_in_cluster and listener.name == listeners.inter_broker:
            yield from _inter_broker_problems(listener.name, settings)


def _listener_problems(listener: str, settings: Settings) -> Iterator[str]:
    own = settings(listener)
    mechanisms, name = enabled_mechanisms(own), own.name_of(_ENABLED)
    unknown = [mechanism for mechanism in mechanisms if mechanism not in SERVED]
    if unknown or not mechanisms:
        found = f"{', '.join(unknown)} is not supported" if unknown else "is empty"
        default = ", which is Kafka's default" if unknown == ["GSSAPI"] else ""
        yield f"Listener {listener} uses SASL, but {name} {found}{default}: set it to some of {', '.join(SERVED)}"
        return
    for mechanism in mechanisms:
        of_mechanism = settings(listener, mechanism)
        try:
            entry = jaas_entry(of_mechanism, mechanism)
        except ConfigError as error:
            yield from error.problems
            continue
        if mechanism == OAUTHBEARER:
            from headrace.broker.configs.oauth_rules import oauth_problems  # few brokers have OAUTHBEARER

            yield from oauth_problems(listener, of_mechanism, entry)
        if mechanism == PLAIN and (entry is None or not entry.users):
            yield (
                f"Listener {listener} has PLAIN, but no users: set listener.name.{listener.lower()}.plain.{_JAAS} to "
                f'org.apache.kafka.common.security.plain.PlainLoginModule required user_NAME="PASSWORD" ...;'
            )


def _inter_broker_problems(listener: str, settings: Settings) -> Iterator[str]:
    own = settings(listener)
    mechanism, enabled = link_mechanism(own), enabled_mechanisms(own)
    if mechanism not in enabled:
        yield (
            f"{own.name_of(_BETWEEN_BROKERS)} is {mechanism}, but it has to be one of the mechanisms of listener "
            f"{listener}, which brokers use among themselves: {', '.join(enabled)}"
        )
    if mechanism not in SERVED or mechanism not in enabled:
        return
    of_mechanism = settings(listener, mechanism)
    try:
        entry = jaas_entry(of_mechanism, mechanism)
    except ConfigError:
        return  # it is one of the listener's problems already
    line = f"listener.name.{listener.lower()}.{mechanism.lower()}.{_JAAS}"
    if mechanism == OAUTHBEARER:
        from headrace.broker.configs.link_token_rules import link_token_problems

        yield from link_token_problems(listener, of_mechanism, entry, line)
    elif entry is None or not {"username", "password"} <= entry.options.keys():
        yield (
            f"Brokers log in with {mechanism} on listener {listener}, but there are no credentials: set username and "
            f"password in {line}"
        )
