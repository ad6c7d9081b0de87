"""``headrace reassign-partitions``: moves partitions between brokers and log dirs.

``--generate`` proposes a plan, ``--execute`` starts it, ``--verify`` shows its progress (with ``--wait`` until it is
done), ``--cancel`` cancels it, ``--list`` shows all reassignments in progress.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.client.admin.types import Reassignment
from headrace.client.errors import BrokerError, ErrorCode, UnsupportedByBroker
from headrace.client.types import TopicPartition
from headrace.tools.reassign_partitions import throttles as reassignment_throttles
from headrace.tools.reassign_partitions.plan import (
    PartitionState,
    ReplicaState,
    Targets,
    as_json,
    as_text,
    current_targets,
    listing,
    moves,
    parse_reassignment,
    parse_topics,
    partition_states,
    propose,
    replica_states,
    wanted_log_dirs,
)
from headrace.tools.shared.commands import (
    DONE,
    CommandError,
    Output,
    Table,
    UsageError,
    chosen_action,
    connect,
    new_parser,
    progress,
    read_json,
    run,
)
from headrace.tools.shared.topic_names import parse_ids, partition_names

if TYPE_CHECKING:
    from headrace import Admin

_ACTIONS = ("generate", "execute", "verify", "cancel", "list")
_POLL_SECONDS = 0.5
_LEAST_THROTTLE = 1024
#: Options, with the actions that accept them.
_GOES_WITH = {
    "topics_to_move_json_file": ("generate",),
    "broker_list": ("generate",),
    "disable_rack_aware": ("generate",),
    "reassignment_json_file": ("execute", "verify", "cancel"),
    "throttle": ("execute",),
    "replica_alter_log_dirs_throttle": ("execute",),
    "additional": ("execute",),
    "disallow_replication_factor_change": ("execute",),
    "preserve_throttles": ("verify", "cancel"),
    "wait": ("verify",),
}
_EXAMPLES = """
headrace reassign-partitions --generate --topics-to-move-json-file topics.json --broker-list 1,2,3
topics.json: {"version": 1, "topics": [{"topic": "orders"}]}
headrace reassign-partitions --execute --reassignment-json-file plan.json --throttle 10000000
plan.json: {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [2, 3]}]}
headrace reassign-partitions --verify --reassignment-json-file plan.json --wait
headrace reassign-partitions --cancel --reassignment-json-file plan.json
headrace reassign-partitions --list --json
"""


def main(arguments: Sequence[str]) -> int:
    return run(parser(), arguments, _work)


def parser() -> ArgumentParser:
    parser = new_parser("reassign-partitions", "Move partitions between brokers and log dirs.", _EXAMPLES)
    add = parser.add_argument
    add("--generate", action="store_true", help="propose new replicas for the partitions of topics")
    add("--execute", action="store_true", help="start to move partitions")
    add("--verify", action="store_true", help="show the progress; when the plan is done, remove the throttles")
    add("--cancel", action="store_true", help="cancel the moves, and return to the earlier replicas")
    add("--list", action="store_true", help="show the partitions that are being moved")
    add("--topics-to-move-json-file", metavar="FILE", type=Path, help="--generate: the topics")
    add("--broker-list", metavar="1,2,...", help="--generate: the brokers to place replicas on")
    add("--disable-rack-aware", action="store_true", help="--generate: ignore racks")
    add("--reassignment-json-file", metavar="FILE", type=Path, help="a file with partitions, each with its replicas")
    add("--throttle", metavar="BYTES/S", type=int, help="--execute: the largest rate of copying between brokers")
    add(
        "--replica-alter-log-dirs-throttle",
        metavar="BYTES/S",
        type=int,
        help="--execute: the largest rate of copying between log dirs",
    )
    add(
        "--additional",
        action="store_true",
        help="--execute: even if other partitions are being moved; also changes the throttle",
    )
    add(
        "--disallow-replication-factor-change",
        action="store_true",
        help="--execute: reject a plan that changes the number of replicas",
    )
    add("--preserve-throttles", action="store_true", help="--verify, --cancel: keep the throttles")
    add("--wait", action="store_true", help="--verify: wait until the plan is done")
    return parser


def _work(options: Namespace, out: Output) -> int:
    action = chosen_action(options, _ACTIONS)
    for name, actions in _GOES_WITH.items():
        if getattr(options, name) and action not in actions:
            raise UsageError(f'Option "--{name.replace("_", "-")}" can\'t be used with action "--{action}"')
    for name in ("throttle", "replica_alter_log_dirs_throttle"):
        if getattr(options, name) is not None and getattr(options, name) < _LEAST_THROTTLE:
            raise UsageError(f"--{name.replace('_', '-')} must be at least {_LEAST_THROTTLE} bytes per second")
    wanted: Targets = {}
    if "reassignment_json_file" in _needed(action):
        if options.reassignment_json_file is None:
            raise UsageError(f"--{action} needs --reassignment-json-file")
        wanted = parse_reassignment(read_json(options.reassignment_json_file), str(options.reassignment_json_file))
    with connect(options) as admin:
        try:
            if action == "generate":
                _generate(admin, options, out)
            elif action == "list":
                _list(admin, out)
            elif action == "execute":
                _execute(admin, wanted, options, out)
            elif action == "verify":
                _verify(admin, wanted, options, out)
            else:
                _cancel(admin, wanted, options, out)
        except UnsupportedByBroker as error:
            raise CommandError(f"the cluster cannot move partitions: {error}") from error
    return DONE


def _needed(action: str) -> tuple[str, ...]:
    return tuple(name for name, actions in _GOES_WITH.items() if action in actions)


# ----------------------------------------------------------------------------------------------------------- generate


def _generate(admin: Admin, options: Namespace, out: Output) -> None:
    if options.topics_to_move_json_file is None or not options.broker_list:
        raise UsageError("--generate needs --topics-to-move-json-file and --broker-list")
    topics = parse_topics(read_json(options.topics_to_move_json_file), str(options.topics_to_move_json_file))
    broker_ids = parse_ids(options.broker_list, "--broker-list")
    if len(set(broker_ids)) < len(broker_ids):
        raise UsageError(f"Broker list contains duplicate entries: {options.broker_list}")
    known = {broker.id: broker.rack for broker in admin.describe_cluster().brokers}
    _check_brokers(broker_ids, known)
    racks = {broker_id: known[broker_id] for broker_id in broker_ids}
    if options.disable_rack_aware:
        racks = dict.fromkeys(racks)
    elif None in racks.values() and set(racks.values()) != {None}:
        raise CommandError(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica "
            "assignment without rack information."
        )
    replicas = _replicas(admin, topics)
    current = current_targets(replicas, admin.describe_log_dirs().ok)
    proposed = propose(replicas, racks)
    out.show(
        {"current": as_json(current), "proposed": as_json(proposed)},
        [
            "Current partition replica assignment",
            as_text(current),
            "",
            "Proposed partition reassignment configuration",
            as_text(proposed),
        ],
    )


def _replicas(admin: Admin, topics: Iterable[str]) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas of all partitions of the topics."""
    return {
        TopicPartition(name, partition.partition): partition.replicas
        for name, topic in admin.describe_topics(topics).all().items()
        for partition in topic.partitions
    }


def _check_brokers(broker_ids: Iterable[int], known: Iterable[int]) -> None:
    there = set(known)
    for broker_id in broker_ids:
        if broker_id not in there:
            raise CommandError(f"Unknown broker id {broker_id}")


# ------------------------------------------------------------------------------------------------------------ execute


def _execute(admin: Admin, wanted: Targets, options: Namespace, out: Output) -> None:
    ongoing = admin.list_partition_reassignments()
    if ongoing and not options.additional:
        raise CommandError(
            "Cannot execute because there is an existing partition assignment.  Use --additional to override this and "
            "create a new partition assignment in addition to the existing one."
        )
    known = [broker.id for broker in admin.describe_cluster().brokers]
    _check_brokers((broker_id for target in wanted.values() for broker_id in target.replicas), known)
    everything = _replicas(admin, {partition.topic for partition in wanted})
    for partition in wanted:
        if partition not in everything:
            raise CommandError(f"Unable to find partition: {partition}")
    current = current_targets({at: everything[at] for at in wanted}, admin.describe_log_dirs().ok)
    out.say(f"Current partition replica assignment\n\n{as_text(current)}\n")
    out.say("Save this to use as the --reassignment-json-file option during rollback")
    log_dirs = wanted_log_dirs(wanted)
    if options.throttle is not None or options.replica_alter_log_dirs_throttle is not None:
        out.say(
            "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is "
            "removed."
        )
    if options.throttle is not None:
        reassignment_throttles.throttle(admin, moves(wanted, everything, ongoing), options.throttle, out)
    if options.replica_alter_log_dirs_throttle is not None and log_dirs:
        broker_ids = {replica.broker_id for replica in log_dirs}
        reassignment_throttles.throttle_log_dirs(admin, broker_ids, options.replica_alter_log_dirs_throttle, out)
    results = admin.alter_partition_reassignments(
        {partition: target.replicas for partition, target in wanted.items()},
        allow_replication_factor_change=not options.disallow_replication_factor_change,
    )
    if results.errors:
        reasons = "; ".join(f"{partition}: {error}" for partition, error in sorted(results.errors.items()))
        raise CommandError(f"Error reassigning partition(s): {reasons}")
    plural = "" if len(wanted) == 1 else "s"
    out.say(f"Successfully started partition reassignment{plural} for {partition_names(wanted)}")
    if log_dirs:
        _move_log_dirs(admin, wanted, options.timeout, out)
    out.show({"previous": as_json(current), "started": as_json(wanted)}, ())


def _move_log_dirs(admin: Admin, wanted: Targets, timeout_ms: int, out: Output) -> None:
    """Sends the log dirs to the brokers.

    A broker that has the replica moves it; another broker keeps the log dir for later.
    """
    left = wanted_log_dirs(wanted)
    deadline = time.monotonic() + timeout_ms / 1000
    while left:
        results = admin.alter_replica_log_dirs(left)
        for replica, error in results.items():
            if error is None:
                out.say(
                    f"Successfully started moving log directory to {left.pop(replica)} for replica "
                    f"{replica.topic}-{replica.partition} with broker {replica.broker_id}"
                )
            elif not (isinstance(error, BrokerError) and error.code is ErrorCode.replica_not_available):
                raise error
        if left and time.monotonic() > deadline:
            names = ",".join(f"{each.topic}-{each.partition}-{each.broker_id}" for each in left)
            raise CommandError(f"Timed out before log directory moves could be started for: {names}")
        if left:
            time.sleep(_POLL_SECONDS)


# ------------------------------------------------------------------------------------------------------------- verify


def _verify(admin: Admin, wanted: Targets, options: Namespace, out: Output) -> None:
    if options.wait:
        _wait(admin, wanted)
    partitions, replicas, ongoing = _states(admin, wanted)
    lines = ["Status of partition reassignment:", *map(str, partitions), *map(str, replicas), ""]
    rows = [(*state.partition, _outcome(state)) for state in partitions]
    value = [{"topic": topic, "partition": index, "status": outcome} for topic, index, outcome in rows]
    value += [
        {
            "topic": state.replica.topic,
            "partition": state.replica.partition,
            "broker": state.replica.broker_id,
            "logDir": state.wanted,
            "status": _outcome(state),
        }
        for state in replicas
    ]
    rows += [
        (
            state.replica.topic,
            state.replica.partition,
            f"{_outcome(state)} (log dir of broker {state.replica.broker_id})",
        )
        for state in replicas
    ]
    out.show(value, lines, Table(("TOPIC", "PARTITION", "STATUS"), rows))
    is_moving = bool(ongoing) or any(state.is_ongoing for state in replicas)
    if not is_moving and not options.preserve_throttles:
        _clear_throttles(admin, wanted, out)


def _outcome(state: PartitionState | ReplicaState) -> str:
    if state.is_ongoing:
        return "in progress"
    is_done = state.replicas == state.wanted if isinstance(state, PartitionState) else state.is_done
    return "completed" if is_done else str(state)


def _states(
    admin: Admin, wanted: Targets
) -> tuple[list[PartitionState], list[ReplicaState], dict[TopicPartition, Reassignment]]:
    """The state of the partitions and log dirs of the plan, and all reassignments in progress."""
    ongoing = admin.list_partition_reassignments()
    topics = admin.describe_topics({partition.topic for partition in wanted}).ok
    there = {
        TopicPartition(name, partition.partition): partition.replicas
        for name, topic in topics.items()
        for partition in topic.partitions
    }
    log_dirs = admin.describe_log_dirs().ok if wanted_log_dirs(wanted) else {}
    return partition_states(wanted, there, ongoing), list(replica_states(wanted, log_dirs)), ongoing


def _wait(admin: Admin, wanted: Targets) -> None:
    total = len(wanted) + len(wanted_log_dirs(wanted))
    with progress("reassigning", total, unit="partitions") as move_to:
        while True:
            partitions, replicas, _ = _states(admin, wanted)
            states: list[PartitionState | ReplicaState] = [*partitions, *replicas]
            left = sum(state.is_ongoing for state in states)
            move_to(total - left)
            if not left:
                return
            time.sleep(_POLL_SECONDS)


def _clear_throttles(admin: Admin, wanted: Targets, out: Output) -> None:
    known = [broker.id for broker in admin.describe_cluster().brokers]
    topics = admin.list_topics(include_internal=True).keys() & {partition.topic for partition in wanted}
    reassignment_throttles.clear(admin, known, topics, out)


# ------------------------------------------------------------------------------------------------------ cancel and list


def _cancel(admin: Admin, wanted: Targets, options: Namespace, out: Output) -> None:
    active = [partition for partition in admin.list_partition_reassignments(wanted) if partition in wanted]
    if active:
        results = admin.alter_partition_reassignments(dict.fromkeys(active))
        if results.errors:
            reasons = "; ".join(f"{partition}: {error}" for partition, error in sorted(results.errors.items()))
            raise CommandError(f"Error cancelling partition reassignments for: {reasons}")
        plural = "" if len(active) == 1 else "s"
        out.say(f"Successfully cancelled partition reassignment{plural} for: {partition_names(active)}")
    else:
        out.say("None of the specified partition reassignments are active.")
    moving = [state for state in _states(admin, wanted)[1] if state.is_ongoing and state.current is not None]
    if moving:
        back = {state.replica: state.current for state in moving if state.current is not None}
        admin.alter_replica_log_dirs(back).all()
        names = ",".join(f"{each.topic}-{each.partition}-{each.broker_id}" for each in sorted(back))
        out.say(f"Successfully cancelled moves of log directories for: {names}")
    else:
        out.say("None of the specified partition moves are active.")
    out.show([{"topic": partition.topic, "partition": partition.partition} for partition in sorted(active)], ())
    if not options.preserve_throttles:
        _clear_throttles(admin, wanted, out)


def _list(admin: Admin, out: Output) -> None:
    ongoing = admin.list_partition_reassignments()
    lines = (
        ["Current partition reassignments:", *listing(ongoing)] if ongoing else ["No partition reassignments found."]
    )
    value = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "replicas": list(each.replicas),
            "addingReplicas": list(each.adding_replicas),
            "removingReplicas": list(each.removing_replicas),
        }
        for partition, each in sorted(ongoing.items())
    ]
    out.show(value, lines)
