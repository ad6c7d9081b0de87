"""``headrace configs``: shows and changes settings of topics, brokers, groups and loggers, and quotas of clients."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.client.admin.types import ConfigChange
from headrace.client.errors import HeadraceError, UnknownGroup, UnknownTopic
from headrace.tools.configs import entities as config_entities
from headrace.tools.configs import quotas
from headrace.tools.configs.entities import (
    DEFAULTS,
    LOGGERS,
    TYPES,
    USERS,
    WITH_QUOTAS,
    Entity,
    changes,
    entities_of,
    names_to_be_there,
    own_entries,
    parse_added,
)
from headrace.tools.shared.commands import (
    DONE,
    FAILED,
    CommandError,
    Output,
    Table,
    UsageError,
    chosen_action,
    connect,
    new_parser,
    read_properties,
    run,
)

if TYPE_CHECKING:
    from headrace import Admin

_EXAMPLES = """
headrace configs --describe --entity-type topics --entity-name orders --all
headrace configs --alter --topic orders --add-config 'retention.ms=60000,cleanup.policy=[compact,delete]'
headrace configs --alter --topic orders --delete-config retention.ms
headrace configs --alter --entity-type brokers --entity-default --add-config-file broker.properties
headrace configs --describe --broker 0 --json
headrace configs --alter --entity-type broker-loggers --entity-name 0 --add-config kafka.request.logger=DEBUG
headrace configs --alter --broker-logger 0 --delete-config headrace.log
headrace configs --alter --entity-type users --entity-name alice --add-config 'SCRAM-SHA-256=[password=secret]'
headrace configs --describe --entity-type users
headrace configs --alter --user alice --delete-config SCRAM-SHA-256
headrace configs --alter --user alice --client-defaults --add-config 'producer_byte_rate=1048576,request_percentage=50'
headrace configs --alter --entity-type clients --entity-name app --delete-config producer_byte_rate
headrace configs --alter --ip-defaults --add-config connection_creation_rate=100
headrace configs --describe --entity-type users --entity-type clients
headrace configs --zookeeper 127.0.0.1:2181 --alter --user bob --add-config 'SCRAM-SHA-512=[iterations=8192,password=x]'
"""


def main(arguments: Sequence[str]) -> int:
    return run(parser(), arguments, _work)


def parser() -> ArgumentParser:
    parser = new_parser("configs", "Show and change settings of topics, brokers, groups and users; quotas.", _EXAMPLES)
    parser.add_argument("--describe", action="store_true", help="show settings")
    parser.add_argument("--alter", action="store_true", help="change settings")
    parser.add_argument("--force", action="store_true", help="accepted, because Kafka's tool has it; nothing is asked")
    _add_entities(parser)
    parser.add_argument(
        "--zookeeper",
        metavar="HOST:PORT,...",
        help="users: change them in ZooKeeper itself, before the first broker of a cluster starts",
    )
    parser.add_argument(
        "--zk-tls-config-file",
        dest="zk_tls_file",
        metavar="FILE",
        help="--zookeeper: a file with the settings zookeeper.* of the brokers (TLS, login, zookeeper.set.acl)",
    )
    parser.add_argument("--login-file", metavar="FILE", help="--zookeeper: a file with USER:PASSWORD, to log in there")
    parser.add_argument("--all", action="store_true", help="--describe: show also the values of files and defaults")
    parser.add_argument(
        "--add-config",
        metavar="NAME=VALUE,...",
        help="set these settings; write brackets around a value with commas: a=[b,c]",
    )
    parser.add_argument("--add-config-file", metavar="FILE", type=Path, help="set the settings of a properties file")
    parser.add_argument(
        "--delete-config", metavar="NAME,...", help="remove these settings, so that their defaults apply"
    )
    return parser


def _add_entities(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--entity-type",
        dest="entity_types",
        action="append",
        default=[],
        metavar="TYPE",
        help=f"whose settings: {', '.join(TYPES)}; users and clients may be named together",
    )
    parser.add_argument(
        "--entity-name",
        dest="entity_names",
        action="append",
        default=[],
        metavar="NAME",
        help="the topic's name, the broker's id, ... (default: all entities of the type)",
    )
    parser.add_argument(
        "--entity-default",
        dest="entity_names",
        action="append_const",
        const=None,
        help="in place of a name: the defaults of all brokers, users, clients or ips",
    )
    parser.add_argument("--topic", metavar="NAME", help="a topic: short for type and name")
    parser.add_argument("--broker", metavar="ID", help="a broker")
    parser.add_argument("--broker-defaults", action="store_true", help="the defaults of all brokers")
    parser.add_argument("--broker-logger", metavar="ID", help="the log levels of a broker")
    parser.add_argument("--group", metavar="ID", help="a consumer group")
    parser.add_argument("--user", metavar="NAME", help="a user: quotas and SCRAM credentials")
    parser.add_argument("--user-defaults", action="store_true", help="quotas of each user that has none")
    parser.add_argument("--client", metavar="ID", help="a client id: quotas")
    parser.add_argument("--client-defaults", action="store_true", help="quotas of each client id that has none")
    parser.add_argument("--ip", metavar="ADDRESS", help="an address: its quota of connections")
    parser.add_argument("--ip-defaults", action="store_true", help="the quota of each address that has none")
    parser.add_argument("--client-metrics", metavar="NAME", help="a subscription to metrics of clients")


def _work(options: Namespace, out: Output) -> int:
    action = chosen_action(options, ("describe", "alter"))
    entities = entities_of(options)
    if options.zookeeper and [entity.type.name for entity in entities] != [USERS]:
        raise UsageError("--zookeeper goes with --entity-type users; use --bootstrap-server for all other entities")
    if (options.zk_tls_file or options.login_file) and not options.zookeeper:
        raise UsageError("--zk-tls-config-file and --login-file go with --zookeeper")
    if action == "alter":
        return _alter(options, entities, out)
    if options.add_config or options.add_config_file or options.delete_config:
        raise UsageError("--add-config, --add-config-file and --delete-config go with --alter")
    if entities[0].type.name in WITH_QUOTAS:
        return quotas.describe(options, entities, out)
    return _describe(options, entities[0], out)


def _alter(options: Namespace, entities: Sequence[Entity], out: Output) -> int:
    for each in entities:
        if each.name is None:
            raise UsageError(f"An entity name must be specified with --alter of {each.type.name}")
    wanted = _wanted(options)
    entity = entities[0]
    if entity.type.name in WITH_QUOTAS:
        return quotas.alter(options, entities, wanted, out)
    with connect(options) as admin:
        _check_names(admin, entity, wanted, out)
        admin.alter_configs({entity.resource: wanted}).value(entity.resource)
    changed = {change.name: change.value for change in wanted}
    value = {"entityType": entity.type.name, "entityName": entity.name or None, "changed": changed}
    out.show(value, config_entities.completed(entity))
    return DONE


def _wanted(options: Namespace) -> list[ConfigChange]:
    """The changes that the options ask for."""
    if options.all:
        raise UsageError("--all goes with --describe")
    if options.add_config and options.add_config_file:
        raise UsageError("Only one of --add-config or --add-config-file must be specified")
    added = parse_added(options.add_config) if options.add_config else {}
    if options.add_config_file:
        added = read_properties(options.add_config_file)
    wanted = changes(added, options.delete_config)
    if not wanted:
        raise UsageError(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter"
        )
    return wanted


def _check_names(admin: Admin, entity: Entity, wanted: Sequence[ConfigChange], out: Output) -> None:
    """Checks that the entity has the settings to be deleted, and the loggers to be changed.

    Kafka's tool refuses an unknown logger, and accepts the deletion of a setting that is not set. A warning shows a
    spelling mistake.
    """
    names = names_to_be_there(entity, wanted)
    if not names:
        return
    entries = admin.describe_configs([entity.resource]).value(entity.resource)
    own = {entry.name for entry in own_entries(entity, entries.values(), with_all=False)}
    missing = [name for name in names if name not in own]
    if not missing:
        return
    if entity.type.name == LOGGERS:
        raise CommandError(f"Invalid broker logger(s): {','.join(missing)}")
    out.complain(f"warning: {', '.join(missing)} cannot be deleted, because {_is_or_are(missing)} not set")


def _is_or_are(names: Sequence[str]) -> str:
    return "it is" if len(names) == 1 else "they are"


def _describe(options: Namespace, entity: Entity, out: Output) -> int:
    with connect(options) as admin:
        entities = [entity] if entity.name is not None else _every(admin, entity)
        results = admin.describe_configs([each.resource for each in entities], include_synonyms=True)
    code = DONE
    found = []
    for each in entities:
        entries = results[each.resource]
        if isinstance(entries, HeadraceError):
            if not isinstance(entries, UnknownTopic | UnknownGroup):
                raise entries
            out.complain(f"The {each.type.singular} '{each.name}' doesn't exist and doesn't have dynamic config.")
            code = FAILED
        else:
            found.append((each, own_entries(each, entries.values(), with_all=options.all)))
    out.show(
        [config_entities.value(each, entries) for each, entries in found],
        (line for each, entries in found for line in config_entities.lines(each, entries, with_all=options.all)),
        Table(
            ("ENTITY", "CONFIG", "VALUE", "SOURCE"),
            [
                (f"{each.type.singular} {each.name or 'defaults'}", entry.name, entry.value, entry.source)
                for each, entries in found
                for entry in entries
            ],
        ),
    )
    return code


def _every(admin: Admin, entity: Entity) -> list[Entity]:
    """All entities of a type; for brokers also their defaults."""
    kind = entity.type
    match kind.name:
        case "topics":
            return [Entity(kind, name) for name in admin.list_topics(include_internal=True)]
        case "groups":
            return [Entity(kind, group.group_id) for group in admin.list_groups()]
        case "brokers" | "broker-loggers":
            brokers = [Entity(kind, str(broker.id)) for broker in admin.describe_cluster().brokers]
            return [*brokers, Entity(kind, DEFAULTS)] if kind.name == "brokers" else brokers
        case "client-metrics":
            return [Entity(kind, found.name) for found in admin.list_config_resources(["client_metrics"])]
    raise UsageError(f"An entity name must be specified with --describe of {kind.name}")
