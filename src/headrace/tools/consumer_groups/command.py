"""``headrace consumer-groups``: lists groups, shows their lag, resets their offsets, and deletes groups.

The command knows groups of both protocols, classic and consumer (KIP-848). ``descriptions.py`` makes the output;
``resets.py`` resets and deletes offsets.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.client.admin.types import GroupDescription, GroupListing
from headrace.client.errors import UnknownGroup
from headrace.tools.consumer_groups import descriptions as group_descriptions
from headrace.tools.consumer_groups.descriptions import Column, Text, member_state
from headrace.tools.consumer_groups.resets import check_reset, delete_offsets, reset, strategy_of
from headrace.tools.shared.commands import (
    DONE,
    FAILED,
    CommandError,
    Output,
    Table,
    UsageError,
    chosen_action,
    connect,
    int64,
    new_parser,
    run,
)

if TYPE_CHECKING:
    from headrace import Admin

_ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets", "validate-regex")
_STATES = (
    "Assigning", "CompletingRebalance", "Dead", "Empty", "PreparingRebalance", "Reconciling", "Stable",
)  # fmt: skip
_TYPES = ("Classic", "Consumer")
_EXAMPLES = """
headrace consumer-groups --list --state --type
headrace consumer-groups --describe --group billing
headrace consumer-groups --describe --all-groups --members --verbose
headrace consumer-groups --reset-offsets --group billing --topic orders:0,1 --to-earliest --execute
headrace consumer-groups --reset-offsets --group billing --all-topics --by-duration PT1H --dry-run
headrace consumer-groups --reset-offsets --group billing --all-topics --to-current --export --dry-run > offsets.csv
headrace consumer-groups --reset-offsets --group billing --from-file offsets.csv --execute
headrace consumer-groups --delete-offsets --group billing --topic orders
headrace consumer-groups --delete --group billing --group shipping
"""


def main(arguments: Sequence[str]) -> int:
    return run(parser(), arguments, _work)


def parser() -> ArgumentParser:
    parser = new_parser(
        "consumer-groups", "List and describe consumer groups, reset their offsets, delete them.", _EXAMPLES
    )
    add = parser.add_argument
    flag = partial(parser.add_argument, action="store_true")
    flag("--list", help="list the ids of groups; with --state or --type also these")
    flag("--describe", help="show the offsets and lag of groups (--offsets), their --members or their --state")
    flag("--delete", help="delete groups that have no members")
    flag(
        "--reset-offsets",
        help="reset the offsets of groups that have no members; only shows the new offsets unless --execute is given",
    )
    flag("--delete-offsets", help="delete committed offsets of a group")
    add(
        "--validate-regex", metavar="REGEX", help="check whether a subscription could use this regular expression (RE2)"
    )
    add("--group", metavar="ID", action="append", default=[], help="the group; may be repeated")
    flag("--all-groups", help="all groups")
    flag("--offsets", help="--describe: show offsets and lag (the default)")
    flag("--members", help="--describe: show the members")
    add(
        "--state",
        metavar="STATE,...",
        nargs="?",
        const="",
        help="--describe: show the state; --list: show states, or only groups in these states",
    )
    add(
        "--type",
        metavar="TYPE,...",
        nargs="?",
        const="",
        help="--list: show types, or only groups of these types: classic, consumer",
    )
    flag("--verbose", help="--describe: more columns")
    add(
        "--topic",
        metavar="NAME[:0,1]",
        action="append",
        default=[],
        help="the topic, or some partitions of it; may be repeated",
    )
    flag("--all-topics", help="--reset-offsets: all topics for which the group has committed offsets")
    flag("--to-earliest", help="reset to the first record")
    flag("--to-latest", help="reset to the end of the partition")
    flag("--to-current", help="reset to the committed offset, or to the end if there is none")
    add("--to-offset", metavar="N", type=int64, help="to this offset")
    add("--shift-by", metavar="N", type=int64, help="move the offset by this many records, backward if negative")
    add(
        "--to-datetime",
        metavar="TIME",
        help="reset to the first record at or after YYYY-MM-DDThh:mm:ss.sss (UTC, or with a time zone)",
    )
    add("--by-duration", metavar="DURATION", help="reset to the first record that is not older than PnDTnHnMnS")
    add("--from-file", metavar="FILE", type=Path, help="reset to the offsets of a file, as --export prints them")
    flag("--export", help="--reset-offsets: print lines for --from-file")
    flag("--dry-run", help="--reset-offsets: only show the new offsets")
    flag("--execute", help="--reset-offsets: change the offsets, instead of only showing the new ones")
    return parser


def _work(options: Namespace, out: Output) -> int:
    action = chosen_action(options, _ACTIONS)
    _check(action, options)
    if action == "validate-regex":
        return _validate_regex(options.validate_regex, out)
    with connect(options) as admin:
        if action == "list":
            return _list(admin, options, out)
        if action == "delete-offsets":
            return delete_offsets(admin, options, out)
        groups = [each.group_id for each in _consumers(admin)] if options.all_groups else options.group
        if action == "describe":
            return _describe(admin, groups, options, out)
        if action == "delete":
            return _delete(admin, groups, out)
        return reset(admin, groups, options, out)


def _check(action: str, options: Namespace) -> None:
    if action in ("describe", "delete", "reset-offsets") and bool(options.group) == options.all_groups:
        raise UsageError(f"Option --{action} takes one of these options: --all-groups, --group")
    if action == "describe":
        if options.members + options.offsets + (options.state is not None) > 1:
            raise UsageError("Option --describe takes at most one of these options: --members, --offsets, --state")
        if options.state:
            raise UsageError("Option --describe does not take a value for --state")
    if action in ("list", "describe", "delete") and options.topic:
        raise UsageError(f"--topic does not go with --{action}")
    if action == "delete-offsets" and (len(options.group) != 1 or not options.topic):
        raise UsageError("Option --delete-offsets takes the following options: one --group, and --topic")
    if action == "reset-offsets":
        check_reset(options)
        strategy_of(options)


# --------------------------------------------------------------------------------------------------------------- show


def _consumers(admin: Admin, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[GroupListing]:
    """The groups of consumers, and groups that only commit offsets; not the groups of Kafka Connect and the like."""
    return [each for each in admin.list_groups(states=states, types=types) if each.protocol_type in ("consumer", "")]


def _list(admin: Admin, options: Namespace, out: Output) -> int:
    states = _known(options.state, _STATES, "Invalid state list '{}'. Valid states are: {}")
    types = _known(options.type, _TYPES, "Invalid types list '{}'. Valid types are: {}")
    groups = _consumers(admin, states, types)
    value = [{"group": each.group_id, "type": each.type, "state": each.state} for each in groups]
    if options.state is None and options.type is None:
        names = [each.group_id for each in groups]
        out.show(value, names, Table(["GROUP"], [[name] for name in names]))
        return DONE
    columns = [Column("GROUP", max((len(each.group_id) for each in groups), default=15) + 10)]
    columns += [Column("TYPE", 20)] if options.type is not None else []
    columns += [Column("STATE", 20)] if options.state is not None else []
    rows = [
        [
            each.group_id,
            *([each.type or None] if options.type is not None else []),
            *([each.state or None] if options.state is not None else []),
        ]
        for each in groups
    ]
    text = Text(columns, rows)
    out.show(value, list(text.lines())[1:], text.table())
    return DONE


def _known(text: str | None, names: Sequence[str], complaint: str) -> list[str]:
    """Splits a list at commas, and returns the names in Kafka's spelling."""
    by_lower = {name.lower(): name for name in names}
    wanted = [part.strip().lower() for part in (text or "").split(",") if part.strip()]
    if not by_lower.keys() >= set(wanted):
        raise UsageError(complaint.format(text, ", ".join(names)))
    return [by_lower[name] for name in wanted]


def _describe(admin: Admin, names: Sequence[str], options: Namespace, out: Output) -> int:
    results = admin.describe_groups(names) if names else {}
    values, texts = [], []
    code = DONE
    for name in names:
        group = results[name]
        if isinstance(group, UnknownGroup):
            out.complain(f"Consumer group '{name}' does not exist.")
            code = FAILED
            continue
        if isinstance(group, Exception):
            raise group
        value, text = _described(admin, group, options)
        values.append(value)
        texts.append((group, text))
    if out.as_json:
        out.show(values, ())
    for group, text in () if out.as_json else texts:
        if (said := member_state(group)) is not None:
            out.note(f"\n{said}")
        out.show(None, text.lines(), text.table())
    return code


def _described(admin: Admin, group: GroupDescription, options: Namespace) -> tuple[dict[str, object], Text]:
    verbose = options.verbose
    if options.members:
        return group_descriptions.members_value(group), group_descriptions.members_text(group, verbose=verbose)
    if options.state is not None:
        return group_descriptions.state_value(group), group_descriptions.state_text(group, verbose=verbose)
    committed = admin.list_group_offsets(group.group_id)
    wanted = group_descriptions.partitions_of(group, committed)
    ends = admin.list_offsets(dict.fromkeys(wanted, "latest")).ok if wanted else {}
    rows = group_descriptions.partition_rows(group, committed, {at: found.offset for at, found in ends.items()})
    text = group_descriptions.offsets_text(group.group_id, rows, verbose=verbose)
    return group_descriptions.offsets_value(group, rows), text


# ------------------------------------------------------------------------------------------------------------- change


def _delete(admin: Admin, groups: Sequence[str], out: Output) -> int:
    results = admin.delete_groups(groups) if groups else {}
    errors = {group: error for group, error in results.items() if error is not None}
    done = ", ".join(f"'{group}'" for group in results if group not in errors)
    lines: list[str] = []
    if not errors:
        lines.append(f"Deletion of requested consumer groups ({done}) was successful.")
    elif done:
        lines.append(f"\nThese consumer groups were deleted successfully: {done}")
    if errors:
        out.complain("Deletion of some consumer groups failed:")
        for group, error in errors.items():
            out.complain(f"* Group '{group}' could not be deleted due to: {error}")
    value = [
        {"group": g, "deleted": g not in errors, "error": str(errors[g]) if g in errors else None} for g in results
    ]
    out.show(value, lines)
    return FAILED if errors else DONE


def _validate_regex(text: str, out: Output) -> int:
    from headrace.patterns import compiled_pattern
    from headrace.protocol.errors import InvalidRegularExpression

    try:
        compiled_pattern(text)
    except InvalidRegularExpression as error:
        raise CommandError(f"The regular expression `{text}` is invalid: {error}.") from None
    out.show({"regex": text, "valid": True}, f"The regular expression `{text}` is valid.")
    return DONE
