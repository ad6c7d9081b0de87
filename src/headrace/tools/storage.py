"""``headrace storage``: prepares a broker or a cluster before its first start.

``format`` writes users with SCRAM credentials to the znode tree, so that somebody can log in to a broker whose only
listener has SASL, and so that brokers can log in to each other:

=====================================================  ==========================================================
one broker                                             the tree of its data folder
``--brokers N``, as in ``headrace start --brokers N``  the tree of the cluster, in DATA/zookeeper
``--zookeeper``, or ``zookeeper.connect`` in the file  that ZooKeeper, with the TLS and the login of the file
=====================================================  ==========================================================

It may be repeated: an existing user gets the new credential. Brokers whose tree is in a folder must not run meanwhile.
"""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.properties import ConfigError
from headrace.security.sasl.scram import ScramCredential
from headrace.tools.shared.commands import (
    DONE,
    CommandError,
    Output,
    UsageError,
    new_parser,
    read_properties,
    run,
)
from headrace.tools.shared.scram_options import parse_added_user

if TYPE_CHECKING:
    from headrace.coordination.interface import Coordination

_EXAMPLES = """
headrace storage format --config server.properties --add-scram 'SCRAM-SHA-256=[name=admin,password=secret]'
headrace storage format --data /var/lib/headrace --add-scram 'SCRAM-SHA-512=[name=admin,iterations=8192,password=x]'
headrace storage format --brokers 3 --data cluster --add-scram 'SCRAM-SHA-512=[name=admin,password=secret]'
headrace storage format --zookeeper zk1:2181/headrace --add-scram 'SCRAM-SHA-512=[name=admin,password=secret]'
headrace storage random-uuid
"""
_DEFAULT_FOLDER = "./headrace-data"
_ZOOKEEPER_TIMEOUT_MS = 18_000
_User = tuple[str, str, ScramCredential]


@dataclass(frozen=True)
class _Contents:
    """The cluster id and the users that ``format`` writes."""

    cluster_id: str | None
    users: Sequence[_User]


def main(arguments: Sequence[str]) -> int:
    return run(parser(), arguments, _work)


def parser() -> ArgumentParser:
    parser = new_parser("storage", "Prepare a broker or a cluster before its first start.", _EXAMPLES, connects=False)
    parser.add_argument("action", choices=("format", "random-uuid"), help="format: prepare; random-uuid: make an id")
    parser.add_argument("-c", "--config", metavar="FILE", type=Path, help="the broker's properties file")
    parser.add_argument("--data", metavar="DIR", help=f"the data folder (default: log.dirs, else {_DEFAULT_FOLDER})")
    parser.add_argument(
        "--brokers", metavar="N", type=int, help="prepare the folder of a cluster for headrace start --brokers N"
    )
    parser.add_argument(
        "--zookeeper", metavar="CONNECT", help="prepare the cluster of a ZooKeeper (default: zookeeper.connect)"
    )
    parser.add_argument("-t", "--cluster-id", metavar="ID", help="the cluster's id (default: the broker makes one)")
    parser.add_argument(
        "-S",
        "--add-scram",
        metavar="MECHANISM=[name=USER,password=PASSWORD]",
        action="append",
        default=[],
        help="give a user a SCRAM credential; iterations, salt and saltedpassword are possible, too. May be repeated",
    )
    parser.add_argument(
        "--add-scram-file",
        metavar="FILE",
        type=Path,
        help="the same from a file, one user per line: the list of processes does not show it",
    )
    return parser


def _work(options: Namespace, out: Output) -> int:
    if options.action == "random-uuid":
        from headrace.coordination.znodes import encode_uuid, random_uuid

        made = encode_uuid(random_uuid())
        out.show({"uuid": made}, made)
        return DONE
    contents = _Contents(options.cluster_id, [parse_added_user(text) for text in _added(options)])
    settings = read_properties(options.config) if options.config else {}
    # start --brokers, too, uses the ZooKeeper of the file only for one broker.
    connect = options.zookeeper or (settings.get("zookeeper.connect") if options.brokers is None else None)
    if connect:
        _format_zookeeper(connect, settings, contents)
        place: dict[str, object] = {"zookeeper": connect}
    else:
        folder = _folder(options, settings)
        if options.brokers is None:
            _format_folder(folder, int(settings.get("node.id", settings.get("broker.id", 0))), contents)
        else:
            _format_local_cluster(folder, contents)
        place = {"folder": str(folder)}
    names = [name for name, _, _ in contents.users]
    added = f" with {', '.join(names)}" if names else ""
    out.show({**place, "users": names}, f"Formatted {next(iter(place.values()))}{added}.")
    return DONE


def _added(options: Namespace) -> list[str]:
    if options.add_scram_file is None:
        return list(options.add_scram)
    try:
        lines = options.add_scram_file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"Cannot read --add-scram-file {options.add_scram_file}: {error}") from None
    return [*options.add_scram, *(line for line in lines if line.strip())]


def _folder(options: Namespace, settings: Mapping[str, str]) -> Path:
    of_file = None if options.brokers is not None else settings.get("log.dirs") or settings.get("log.dir")
    return Path((options.data or of_file or _DEFAULT_FOLDER).split(",")[0].strip()).absolute()


# -- the three places


def _format_folder(folder: Path, broker_id: int, contents: _Contents) -> None:
    from headrace.broker.lone.lone_broker import COORDINATION_FOLDER
    from headrace.coordination.interface import CoordinationError
    from headrace.log import meta_properties
    from headrace.log.disk import Disk

    if (folder / "broker-1" / "meta.properties").exists():
        raise CommandError(f"{folder} is the folder of a cluster; give --brokers")
    disk = Disk()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = meta_properties.lock(disk, str(folder))
        try:
            if contents.cluster_id is not None:
                meta_properties.claim(disk, str(folder), broker_id, contents.cluster_id)
            if contents.users:
                asyncio.run(_write_to_folder(folder / COORDINATION_FOLDER, _Contents(None, contents.users)))
        finally:
            disk.close(lock)
    except (meta_properties.LogDirError, CoordinationError, OSError) as error:
        raise CommandError(f"Cannot format {folder}: {error}") from None


def _format_local_cluster(folder: Path, contents: _Contents) -> None:
    from headrace.coordination.interface import CoordinationError
    from headrace.tools.start.local_cluster import TREE_FOLDER

    if (folder / "meta.properties").exists():
        raise CommandError(f"{folder} is the folder of a single broker; give --brokers another --data")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        asyncio.run(_write_to_folder(folder / TREE_FOLDER, contents))
    except BlockingIOError:
        raise CommandError(f"Cannot format {folder}: its cluster is running; add users with headrace configs") from None
    except (CoordinationError, OSError) as error:
        raise CommandError(f"Cannot format {folder}: {error}") from None


def _format_zookeeper(connect: str, settings: Mapping[str, str], contents: _Contents) -> None:
    from headrace.coordination.client.client_security import SETTINGS, ClientSecurity
    from headrace.tools.shared.zookeeper_work import run_in_zookeeper

    try:
        security = ClientSecurity.from_settings({name: settings[name] for name in SETTINGS if name in settings})
    except ConfigError as error:
        raise UsageError(str(error)) from None
    run_in_zookeeper(connect, _ZOOKEEPER_TIMEOUT_MS, security, partial(_write_and_announce, contents))


# -- the tree


async def _write_to_folder(folder: Path, contents: _Contents) -> None:
    from headrace.coordination.client.local_client import LocalCoordination
    from headrace.coordination.tree.host import TreeHost
    from headrace.runtime.clock import SystemClock

    host = TreeHost.open(folder, SystemClock())
    try:
        tree = LocalCoordination(host)
        await _write(contents, tree)
        await tree.close()
    finally:
        host.close()


async def _write(contents: _Contents, tree: Coordination) -> None:
    from headrace.broker.authentication.scram_users import change_user, entity_of

    if contents.cluster_id is not None:
        await _write_cluster_id(contents.cluster_id, tree)
    for name, mechanism, credential in contents.users:
        await change_user(tree, entity_of(name), partial(_with, mechanism, credential))


async def _write_and_announce(contents: _Contents, tree: Coordination) -> None:
    """Writes, and tells brokers that run already of the users."""
    from headrace.broker.authentication.scram_users import announce_user, entity_of
    from headrace.coordination.interface import NodeExistsError
    from headrace.coordination.paths import CONFIG_CHANGES

    await _write(contents, tree)
    with suppress(NodeExistsError):
        await tree.create(CONFIG_CHANGES, make_parents=True)
    for name in {name for name, _, _ in contents.users}:
        await announce_user(tree, entity_of(name))


async def _write_cluster_id(cluster_id: str, tree: Coordination) -> None:
    from headrace.coordination.interface import NodeExistsError
    from headrace.coordination.paths import CLUSTER_ID
    from headrace.coordination.znodes import ClusterId

    try:
        await tree.create(CLUSTER_ID, ClusterId(cluster_id).to_json(), make_parents=True)
    except NodeExistsError:
        data, _ = await tree.get(CLUSTER_ID)
        found = ClusterId.from_json(data).cluster_id
        if found != cluster_id:
            raise CommandError(f"The cluster has the id {found}, not {cluster_id}") from None


def _with(mechanism: str, credential: ScramCredential, configs: Mapping[str, str]) -> Mapping[str, str]:
    return {**configs, mechanism: credential.to_text()}
