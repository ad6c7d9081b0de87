"""``headrace acls``: lists, adds and removes ACLs, with the options and the output of Kafka's tool."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from headrace.security.acls import CLUSTER_NAME, AclBinding, AclFilter, AclOperation, PatternType
from headrace.security.acls.bindings import AclEntry, AclPattern
from headrace.tools.acls.rules_by_pattern import filters_of, principals, resources, rules_of, rules_to_add
from headrace.tools.shared.commands import Output, Table, UsageError, chosen_action, connect, new_parser, run

if TYPE_CHECKING:
    from headrace import Admin

_EXAMPLES = """
headrace acls --list
headrace acls --list --topic orders --resource-pattern-type match
headrace acls --add --allow-principal User:alice --operation Read --operation Describe --topic orders
headrace acls --add --allow-principal User:bob --producer --topic orders
headrace acls --add --allow-principal User:bob --consumer --topic orders --group billing
headrace acls --add --allow-principal User:carol --operation All --topic shop. --resource-pattern-type prefixed
headrace acls --add --deny-principal User:eve --deny-host 10.0.0.1 --operation All --cluster
headrace acls --remove --allow-principal User:alice --operation Read --topic orders --force
"""
_HEADINGS = ("RESOURCE TYPE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION")
_ACTIONS = ("list", "add", "remove")
_ROLES = ("producer", "consumer")


def main(arguments: Sequence[str]) -> int:
    return run(parser(), arguments, _work)


def parser() -> ArgumentParser:
    parser = new_parser("acls", "List, add and remove ACLs.", _EXAMPLES)
    add = parser.add_argument
    add("--list", action="store_true", help="list the ACLs of the given resources, or of all")
    add("--add", action="store_true", help="add ACLs")
    add("--remove", action="store_true", help="remove ACLs, after asking for confirmation")
    _add_resources(parser)
    _add_entries(parser)
    add("--producer", action="store_true", help="the ACLs of a producer: WRITE, DESCRIBE and CREATE on the topics, "
        "WRITE and DESCRIBE on the transactional ids")  # fmt: skip
    add("--consumer", action="store_true", help="the ACLs of a consumer: READ and DESCRIBE on the topics, READ on the "
        "groups")  # fmt: skip
    add("--idempotent", action="store_true", help="with --producer: IDEMPOTENT_WRITE on the cluster. Since Kafka 3.0 "
        "a producer that may write to a topic needs no more")  # fmt: skip
    add("--principal", metavar="TYPE:NAME", action="append", default=[], help="with --list: only the ACLs of this "
        "principal; may be given several times")  # fmt: skip
    add("--force", action="store_true", help="remove without asking for confirmation")
    return parser


def _add_resources(parser: ArgumentParser) -> None:
    add, many = parser.add_argument, partial(parser.add_argument, action="append", default=[])
    many("--topic", metavar="NAME", help="a topic; '*' is every topic; may be given several times")
    many("--group", metavar="NAME", help="a group; '*' is every group; may be given several times")
    add("--cluster", nargs="?", const=True, default=False, choices=(CLUSTER_NAME,), help="the "
        "cluster itself; its name may follow, as in Kafka's examples")  # fmt: skip
    many("--transactional-id", metavar="ID", help="a transactional id; '*' is every id")
    many("--delegation-token", metavar="ID", help="a delegation token; '*' is every token")
    many("--user-principal", metavar="TYPE:NAME", help="a user for whom others may create or see tokens")
    add(
        "--resource-pattern-type", metavar="TYPE", type=_pattern_type, default=PatternType.LITERAL,
        help="literal: the resources of exactly this name (default); prefixed: all resources whose names begin so; to "
        "list and to remove also any: ACLs of exactly this name, literal or prefixed; match: all ACLs that apply to a "
        "resource of this name",
    )  # fmt: skip


def _add_entries(parser: ArgumentParser) -> None:
    many = partial(parser.add_argument, action="append", default=[])
    names = ", ".join(operation.title for operation in AclOperation if operation.is_concrete)
    many("--operation", metavar="NAME", help=f"an operation (default All): {names}")
    many("--allow-principal", metavar="TYPE:NAME", help="allow this principal; User:* is everybody")
    many("--deny-principal", metavar="TYPE:NAME", help="deny this principal; counts before every permission")
    many("--allow-host", metavar="IP", help="the host of the allowed principals (default *)")
    many("--deny-host", metavar="IP", help="the host of the denied principals (default *)")


def _pattern_type(text: str) -> PatternType:
    try:
        found = PatternType.of_name(text)
    except ValueError:
        found = PatternType.UNKNOWN
    if not found.is_known:
        raise ArgumentTypeError(f"{text!r} is not one of any, match, literal, prefixed")
    return found


# ---------------------------------------------------------------------------------------------------------- actions


def _list(options: Namespace, out: Output) -> None:
    named = principals(options.principal)
    with connect(options) as admin:
        found = _described(admin, [each for pattern in resources(options) for each in filters_of(pattern)])
    if not named:
        _show(found, out)
        return
    of_principals = {
        principal: _grouped(
            AclBinding(pattern, entry)
            for pattern, entries in found.items()
            for entry in entries
            if entry.principal == principal
        )
        for principal in named
    }
    if out.as_json or out.is_terminal:
        _show({pattern: entries for each in of_principals.values() for pattern, entries in each.items()}, out)
        return
    for principal, each in of_principals.items():
        out.say(f"ACLs for principal `{principal}`")
        _show(each, out)


def _add(options: Namespace, out: Output) -> None:
    wanted = rules_to_add(options)
    added: list[AclBinding] = []
    with connect(options) as admin:
        for pattern, entries in wanted.items():
            existing = {binding.entry for binding in admin.describe_acls(filters_of(pattern)[0])}
            for entry in sorted(entries & existing):
                out.say(f"Acl (pattern={pattern}, entry={entry}) already exists.")
            missing = sorted(entries - existing)
            if not missing:
                continue
            out.say(f"Adding ACLs for resource `{pattern}`: \n {_lines(missing)}\n")
            bindings = [AclBinding(pattern, entry) for entry in missing]
            admin.create_acls(bindings).all()
            added += bindings
    if out.as_json:
        out.show([_as_json(binding) for binding in added], ())


def _remove(options: Namespace, out: Output) -> None:
    removed: list[AclBinding] = []
    with connect(options) as admin:
        for pattern, entries in rules_of(options).items():
            question = (
                f"Are you sure you want to remove ACLs: \n {_lines(sorted(entries))}\n from resource filter "
                f"`{pattern}`? (y/n)"
                if entries
                else f"Are you sure you want to delete all ACLs for resource filter `{pattern}`? (y/n)"
            )
            if options.force or _confirms(question, out):
                results = admin.delete_acls(filters_of(pattern, sorted(entries))).all()
                removed += (binding for bindings in results.values() for binding in bindings)
    if out.as_json:
        out.show([_as_json(binding) for binding in dict.fromkeys(removed)], ())


_RUN: dict[str, Callable[[Namespace, Output], None]] = {"list": _list, "add": _add, "remove": _remove}


def _work(options: Namespace, out: Output) -> None:
    action = chosen_action(options, _ACTIONS)
    _check_options(options, action)
    _RUN[action](options, out)


def _check_options(options: Namespace, action: str) -> None:
    """
    :raises UsageError: if options do not fit together; the rules are those of Kafka's tool.
    """
    entries = ("allow_host", "allow_principal", "deny_host", "deny_principal")
    forbidden = {
        "list": (*_ROLES, *entries),
        "producer": ("operation", "deny_principal", "deny_host"),
        "consumer": ("operation", "deny_principal", "deny_host"),
    }
    for given in (action, *(role for role in _ROLES if getattr(options, role))):
        for name in forbidden.get(given, ()):
            if getattr(options, name):
                raise UsageError(f'Option "--{name.replace("_", "-")}" can\'t be used with option "--{given}"')
    if options.principal and action != "list":
        raise UsageError("The --principal option is only available if --list is set")
    if options.producer and not options.topic:
        raise UsageError("With --producer you must specify a --topic")
    if options.idempotent and not options.producer:
        raise UsageError("The --idempotent option is only available if --producer is set")
    has_others = not options.producer and (options.cluster or options.transactional_id)
    if options.consumer and (not options.topic or not options.group or has_others):
        raise UsageError(
            "With --consumer you must specify a --topic and a --group and no --cluster or --transactional-id option "
            "should be specified."
        )


def _confirms(question: str, out: Output) -> bool:
    if out.as_json:
        raise UsageError("with --json nobody is asked; add --force")
    out.say(question)
    try:
        return input().strip().lower() == "y"
    except EOFError:
        return False


# ----------------------------------------------------------------------------------------------------------- output


def _described(admin: Admin, filters: Sequence[AclFilter]) -> dict[AclPattern, list[AclEntry]]:
    bindings = (binding for each in filters or [AclFilter()] for binding in admin.describe_acls(each))
    return _grouped(dict.fromkeys(bindings))


def _grouped(bindings: Iterable[AclBinding]) -> dict[AclPattern, list[AclEntry]]:
    found: dict[AclPattern, list[AclEntry]] = defaultdict(list)
    for pattern, entry in bindings:
        found[pattern].append(entry)
    return found


def _show(found: Mapping[AclPattern, Sequence[AclEntry]], out: Output) -> None:
    bindings = [AclBinding(pattern, entry) for pattern, entries in found.items() for entry in entries]
    out.show([_as_json(binding) for binding in bindings], _listed(found), Table(_HEADINGS, map(_row, bindings)))


def _listed(found: Mapping[AclPattern, Sequence[AclEntry]]) -> Iterator[str]:
    for pattern, entries in found.items():
        yield f"Current ACLs for resource `{pattern}`:\n{_lines(entries)}\n"


def _lines(entries: Iterable[AclEntry]) -> str:
    return "\n".join(f"\t{entry}" for entry in entries)


def _row(binding: AclBinding) -> tuple[str, ...]:
    pattern, entry = binding
    return (
        pattern.resource_type.name,
        pattern.name,
        pattern.pattern_type.name,
        entry.principal,
        entry.host,
        entry.operation.name,
        entry.permission.name,
    )


def _as_json(binding: AclBinding) -> dict[str, str]:
    names = ("resourceType", "name", "patternType", "principal", "host", "operation", "permissionType")
    return dict(zip(names, _row(binding), strict=True))
