"""``headrace client-metrics``: shows and changes the subscriptions to metrics of clients (KIP-714)."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.client.admin.types import ConfigChange, ConfigEntry, ConfigResource
from headrace.tools.shared.commands import DONE, Output, Table, UsageError, chosen_action, connect, new_parser, run

if TYPE_CHECKING:
    from headrace import Admin

_EXAMPLES = """
headrace client-metrics --alter --name producers --metrics org.apache.kafka.producer. --interval 60000
headrace client-metrics --alter --generate-name --metrics '*' --match 'client_id=a-.*,client_software_name=librdkafka'
headrace client-metrics --alter --name producers --interval=
headrace client-metrics --describe --name producers
headrace client-metrics --list --json
headrace client-metrics --delete --name producers
"""
_SELECTORS = (
    "client_id, client_instance_id, client_software_name, client_software_version, client_source_address, "
    "client_source_port"
)
_SETTINGS = {"metrics": "metrics", "interval": "interval.ms", "match": "match"}
_SOURCE = "DYNAMIC_CLIENT_METRICS_CONFIG"


def main(arguments: Sequence[str]) -> int:
    return run(parser(), arguments, _work)


def parser() -> ArgumentParser:
    parser = new_parser("client-metrics", "Show and change the subscriptions to metrics of clients.", _EXAMPLES)
    parser.add_argument("--alter", action="store_true", help="create or change a subscription")
    parser.add_argument("--delete", action="store_true", help="delete a subscription")
    parser.add_argument("--describe", action="store_true", help="show the settings of one subscription, or of all")
    parser.add_argument("--list", action="store_true", help="show the names of the subscriptions")
    parser.add_argument("--name", metavar="NAME", help="the name of the subscription")
    parser.add_argument("--generate-name", action="store_true", help="--alter: use a new UUID as the name")
    parser.add_argument(
        "--interval", metavar="MS", help="how often clients push, in milliseconds; '' restores the default"
    )
    parser.add_argument(
        "--match",
        metavar="K1=V1,K2=V2",
        help=f"which clients push: expressions for some of {_SELECTORS}; '' restores the default, all clients",
    )
    parser.add_argument(
        "--metrics",
        metavar="M1,M2",
        help="prefixes of the names of metrics, or * for all metrics; '' restores the default, none",
    )
    return parser


def _work(options: Namespace, out: Output) -> int:
    action = chosen_action(options, ("alter", "delete", "describe", "list"))
    changes = {name: value for flag, name in _SETTINGS.items() if (value := getattr(options, flag)) is not None}
    if action != "alter" and (changes or options.generate_name):
        raise UsageError("--metrics, --interval, --match and --generate-name go with --alter")
    if action == "alter":
        return _alter(options, changes, out)
    if action == "delete":
        return _delete(options, out)
    return _describe(options, out) if action == "describe" else _list(options, out)


def _alter(options: Namespace, changes: dict[str, str], out: Output) -> int:
    if (options.name is None) != options.generate_name:
        raise UsageError("One of --name or --generate-name must be specified with --alter.")
    name = options.name or _new_name()
    wanted = [
        ConfigChange(key, ",".join(part.strip() for part in value.split(",")))
        if value
        else ConfigChange(key, None, "delete")
        for key, value in changes.items()
    ]
    if not wanted:
        raise UsageError("At least one of --metrics, --interval and --match must be specified with --alter.")
    with connect(options) as admin:
        admin.alter_config("client_metrics", name, wanted)
    out.show(
        {"name": name, "changed": {change.name: change.value for change in wanted}},
        f"Altered client metrics config for {name}.",
    )
    return DONE


def _new_name() -> str:
    from headrace.coordination.znodes import encode_uuid, random_uuid

    return encode_uuid(random_uuid())


def _delete(options: Namespace, out: Output) -> int:
    if options.name is None:
        raise UsageError("A client metrics resource name must be specified with --delete.")
    with connect(options) as admin:
        deleted = [ConfigChange(entry.name, None, "delete") for entry in _settings(admin, options.name)]
        if deleted:
            admin.alter_config("client_metrics", options.name, deleted)
    out.show({"name": options.name, "deleted": bool(deleted)}, f"Deleted client metrics config for {options.name}.")
    return DONE


def _describe(options: Namespace, out: Output) -> int:
    with connect(options) as admin:
        known = _names(admin)
        wanted = known if options.name is None else [name for name in known if name == options.name]
        found = {name: _settings(admin, name, with_defaults=True) for name in wanted}
    lines = []
    for name, entries in found.items():
        lines.append(f"Client metrics configs for {name} are:")
        lines += [f"  {entry.name}={entry.value}" for entry in entries]
    if options.name is not None and not found:
        lines.append(f"The client metric resource {options.name} doesn't exist and doesn't have dynamic config.")
    out.show(
        [{"name": name, "configs": {entry.name: entry.value for entry in entries}} for name, entries in found.items()],
        lines,
        Table(
            ("NAME", "CONFIG", "VALUE"),
            [(name, entry.name, entry.value) for name, entries in found.items() for entry in entries],
        ),
    )
    return DONE


def _list(options: Namespace, out: Output) -> int:
    if options.name is not None:
        raise UsageError("--name does not go with --list")
    with connect(options) as admin:
        names = _names(admin)
    out.show(names, names)
    return DONE


def _names(admin: Admin) -> list[str]:
    return [resource.name for resource in admin.list_config_resources(["client_metrics"])]


def _settings(admin: Admin, name: str, *, with_defaults: bool = False) -> list[ConfigEntry]:
    """The settings of a subscription, sorted; without defaults, those that were set."""
    resource = ConfigResource("client_metrics", name)
    entries = admin.describe_configs([resource]).value(resource).values()
    return sorted(entry for entry in entries if with_defaults or entry.source == _SOURCE)
