"""Makes ``docs/configs.md`` from the registry of settings; ``script/generate-docs`` calls it."""

from collections.abc import Iterator, Mapping

from headrace.broker.configs.group import GROUP_KEYS
from headrace.broker.configs.keys import ConfigKey, Synonym, to_text
from headrace.broker.configs.loggers import KAFKA_NAMES, LOGGERS_OF_KAFKA
from headrace.broker.configs.refusals import refused_row
from headrace.broker.configs.registry import SUBJECTS, TOPIC_KEYS, WITHOUT_MEANING
from headrace.broker.configs.table_refused import ROWS, Refused
from headrace.tools.docs.markdown import table

_INTRODUCTION = """\
# Settings

<!-- Made by script/generate-docs from src/headrace/broker/configs. Do not edit. -->

Names, types and defaults are those of Apache Kafka, so a Kafka `server.properties` works unchanged, unless it asks for
security ([refused](#refused)). A broker reads settings from `--config FILE` and `-o key=value`. `headrace configs`
shows and changes settings of a running broker. The column *Change* says how: a `read-only` setting is static, so a
change needs a restart; a `per-broker` setting changes on one broker; a `cluster-wide` setting changes on one broker or
on all. A change is in force at once. Write a setting of one listener as `listener.name.NAME.SETTING`.
"""

_TOPIC_NOTE = (
    "Set these on a topic, at any time. Without a setting on the topic, the broker setting under *Else* applies.\n"
)
_GROUP_NOTE = """\
Set these on a group of the consumer protocol, at any time (`headrace configs --group NAME`), within the bounds of the
broker settings `group.consumer.min.…` and `group.consumer.max.…`. For a setting that the group does not have, the
broker's setting applies.
"""
_LOGGERS_NOTE = """\
The levels of a broker's loggers change while the broker runs (`headrace configs --entity-type broker-loggers
--entity-name ID`, or Kafka's tool). A level is in force at once, on this broker only, and until it stops. The levels
are FATAL, ERROR, WARN, INFO, DEBUG and TRACE. A logger without a level has the level of its parent; `root` has always
one.
The loggers are those of our modules and packages, such as `headrace.broker.network`, and these:
"""
_UNKNOWN_NOTE = """\
A broker accepts and ignores settings of Apache Kafka whose names begin like this, and logs a line for each at its
start. It also logs a line for each name that is in no table.
"""
_REFUSED_NOTE = """\
If a broker ignored a setting that promises protection which Headrace does not have, its data would be unprotected. So a
broker refuses such a setting: the broker does not start (exit code 2, one line that names
the setting), and AlterConfigs answers INVALID_CONFIG. A broker accepts an empty value, which promises nothing, and the
values under *Accepted*. A name that ends with a dot stands for all names with that beginning. The same rules apply to
settings of one listener.

A change of `listeners` opens and closes listeners by their names; a new listener gets its settings in the same request
(`listener.name.NAME.…`). Of a listener that stays, only key and trust stores, limits and threads change. The listener
between brokers cannot be closed. A start first opens the listeners of the broker's file, then those of stored changes.

ZooKeeper may contain such settings of brokers already, from Apache Kafka or from an older Headrace. The broker does not
apply them. It logs an error that names them, starts, and lists them, so that
`headrace configs --alter --broker ID --delete-config NAME` can remove them.

A broker that joins a ZooKeeper with ACLs logs a warning unless `authorizer.class.name` is set: without this setting
no broker enforces ACLs, as in Apache Kafka.
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
    yield "## Log levels\n"
    yield _LOGGERS_NOTE
    yield from table(("Kafka's name", "What it logs"), ((f"`{name}`", text) for name, text in _loggers()))
    yield "## Refused\n"
    yield _REFUSED_NOTE
    yield from table(("Setting", "Accepted", "Missing"), map(_refused_row, sorted(ROWS, key=lambda row: row.name)))
    yield "## Without meaning here\n"
    yield _UNKNOWN_NOTE
    reasons = ((f"`{name}`", reason) for name, reason in WITHOUT_MEANING.items())
    yield from table(("Begins with", "Because"), reasons)


def _loggers() -> Iterator[tuple[str, str]]:
    yield from LOGGERS_OF_KAFKA.items()
    yield from ((name, f"all that `{ours}` logs") for name, ours in KAFKA_NAMES.items())


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
    return f"`{row.name}`", _accepted(row), row.missing


def _accepted(row: Refused) -> str:
    return " or ".join(f"`{value}`" for value in row.accepted) or "empty"


def _synonym(synonym: Synonym) -> str:
    return f"`{synonym.name}`{_UNITS.get(synonym.unit, '')}"
