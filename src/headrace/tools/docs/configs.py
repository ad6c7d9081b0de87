"""Makes ``docs/configs.md`` from the registry of settings; ``script/generate-docs`` calls it."""

from collections.abc import Iterator, Mapping

from headrace.broker.configs.group import GROUP_KEYS
from headrace.broker.configs.keys import ConfigKey, Synonym, to_text
from headrace.broker.configs.refusals import refused_row
from headrace.broker.configs.registry import SUBJECTS, TOPIC_KEYS, WITHOUT_MEANING
from headrace.broker.configs.table_refused import MISSING_PROTOCOLS, ROWS, Refused
from headrace.tools.docs.markdown import table

_INTRODUCTION = """\
# Settings

<!-- Made by script/generate-docs from src/headrace/broker/configs. Do not edit. -->

Names, types and defaults are those of Apache Kafka, so a `server.properties` works as it is, unless it asks for
security ([refused](#refused)). A broker reads settings from `--config FILE` and `-o key=value`; `headrace configs`
shows and changes them while it runs. *Change* says how: a `read-only` one needs a restart, a `per-broker` one is set on
one broker, a `cluster-wide` one on a broker or on all. A setting of one listener is written
`listener.name.NAME.SETTING`.
"""

_TOPIC_NOTE = (
    "Set on a topic, at any time. What a topic does not set comes from the broker setting named under *Else*.\n"
)
_GROUP_NOTE = """\
Set on a group of the consumer protocol, at any time (`headrace configs --group NAME`), within the bounds that the
broker settings `group.consumer.min.…` and `group.consumer.max.…` have. What a group does not set comes from the broker.
"""
_UNKNOWN_NOTE = """\
Settings of Apache Kafka whose names begin like this are accepted and do nothing, which a broker says when it starts.
A name that is in no table at all is reported too.
"""
_REFUSED_NOTE = """\
Headrace has no security and no client quotas yet. A setting of Apache Kafka that promises either would leave open what
it should protect. So a broker refuses such a setting: the broker does not start (exit code 2, one line that names the
setting), and AlterConfigs answers INVALID_CONFIG. An empty value promises nothing, so a broker accepts it, as well as
the values under *Accepted*. A name that ends with a dot is the beginning of names. The same holds for settings of one
listener.

A broker refuses a listener whose protocol is {protocols}. The protocol comes from
`listener.security.protocol.map`. Listeners of KRaft controllers count too.

ZooKeeper may have such settings of brokers already, from Apache Kafka or from an older Headrace. They are not in force.
A broker logs an error that names them, starts, and shows them, so that
`headrace configs --alter --broker ID --delete-config NAME` can remove them.

A broker that joins a ZooKeeper with ACLs or with client quotas logs a warning for each: Headrace enforces neither.
Apache Kafka's brokers do not enforce ACLs either, unless `authorizer.class.name` is set on them.
"""
_OWN_HEADINGS = ("Setting", "Type", "Default", "Allowed", "Else", "What it does")
_UNITS = {60_000: " (minutes)", 3_600_000: " (hours)"}


def render() -> str:
    """The page."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    yield "## Topics\n"
    yield _TOPIC_NOTE
    yield from table(_OWN_HEADINGS, map(_own_row, _by_name(TOPIC_KEYS)))
    yield "## Groups\n"
    yield _GROUP_NOTE
    yield from table(_OWN_HEADINGS, map(_own_row, _by_name(GROUP_KEYS)))
    for subject, keys in SUBJECTS.items():
        yield f"## {subject}\n"
        rows = map(_broker_row, sorted(keys, key=lambda key: key.name))
        yield from table(("Setting", "Type", "Default", "Allowed", "Change", "What it does"), rows)
    yield "## Refused\n"
    yield _REFUSED_NOTE.format(protocols=" or ".join(MISSING_PROTOCOLS))
    yield from table(("Setting", "Accepted", "Missing"), map(_refused_row, sorted(ROWS, key=lambda row: row.name)))
    yield "## Without meaning here\n"
    yield _UNKNOWN_NOTE
    reasons = ((f"`{name}`", reason) for name, reason in WITHOUT_MEANING.items())
    yield from table(("Begins with", "Because"), reasons)


def _by_name(keys: Mapping[str, ConfigKey]) -> list[ConfigKey]:
    return sorted(keys.values(), key=lambda key: key.name)


def _broker_row(key: ConfigKey) -> tuple[str, ...]:
    return (*_facts(key), key.update.value, key.doc)


def _own_row(key: ConfigKey) -> tuple[str, ...]:
    return (*_facts(key), ", ".join(map(_synonym, key.synonyms)), key.doc)


def _facts(key: ConfigKey) -> tuple[str, str, str, str]:
    default = to_text(key.default)
    shown = "not set" if default is None else f"`{default}`" if default else "empty"
    row = refused_row(key.name)
    if row is not None:
        allowed = f"only {_accepted(row)} ([refused](#refused))"
    else:
        allowed = "" if key.check is None else key.check.allowed
    return f"`{key.name}`", key.type.name.lower(), shown, allowed


def _refused_row(row: Refused) -> tuple[str, str, str]:
    name = f"listener.name.NAME.{row.name}" if row.only_on_listener else row.name
    return f"`{name}`", _accepted(row), row.missing


def _accepted(row: Refused) -> str:
    return " or ".join(f"`{value}`" for value in row.accepted) or "empty"


def _synonym(synonym: Synonym) -> str:
    return f"`{synonym.name}`{_UNITS.get(synonym.unit, '')}"
