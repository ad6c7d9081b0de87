"""``headrace storage``: prepares the data folder of a broker that runs alone, before the broker's first start.

``format`` writes users with SCRAM credentials into the znode tree of the data folder, so that somebody can log in to a
broker whose only listener has SASL. It may be repeated: an existing user gets the new credential. The broker must not
run meanwhile. For a cluster, write the users to ZooKeeper: ``headrace configs --zookeeper``.
"""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

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

_EXAMPLES = """
headrace storage format --config server.properties --add-scram 'SCRAM-SHA-256=[name=admin,password=secret]'
headrace storage format --data /var/lib/headrace --add-scram 'SCRAM-SHA-512=[name=admin,iterations=8192,password=x]'
headrace storage random-uuid
"""
_DEFAULT_FOLDER = "./headrace-data"
_User = tuple[str, str, ScramCredential]


def main(arguments: Sequence[str]) -> int:
    return run(parser(), arguments, _work)


def parser() -> ArgumentParser:
    parser = new_parser(
        "storage", "Prepare the data folder of a broker before its first start.", _EXAMPLES, connects=False
    )
    parser.add_argument("action", choices=("format", "random-uuid"), help="format: prepare; random-uuid: make an id")
    parser.add_argument("-c", "--config", metavar="FILE", type=Path, help="the broker's properties file")
    parser.add_argument("--data", metavar="DIR", help=f"the data folder (default: log.dirs, else {_DEFAULT_FOLDER})")
    parser.add_argument("-t", "--cluster-id", metavar="ID", help="the cluster's id (default: the broker makes one)")
    parser.add_argument(
        "-S",
        "--add-scram",
        metavar="MECHANISM=[name=USER,password=PASSWORD]",
        action="append",
        default=[],
        help="give a user a SCRAM credential; iterations, salt and saltedpassword are possible, too. May be repeated",
    )
    return parser


def _work(options: Namespace, out: Output) -> int:
    if options.action == "random-uuid":
        from headrace.coordination.znodes import encode_uuid, random_uuid

        made = encode_uuid(random_uuid())
        out.show({"uuid": made}, made)
        return DONE
    users = [parse_added_user(text) for text in options.add_scram]
    settings = read_properties(options.config) if options.config else {}
    if settings.get("zookeeper.connect"):
        raise UsageError("This broker has zookeeper.connect: add users with headrace configs --zookeeper")
    folder = _folder(options.data, settings)
    _format(folder, options.cluster_id, int(settings.get("node.id", settings.get("broker.id", 0))), users)
    names = [name for name, _, _ in users]
    added = f" with {', '.join(names)}" if names else ""
    out.show({"folder": str(folder), "users": names}, f"Formatted {folder}{added}.")
    return DONE


def _folder(data: str | None, settings: dict[str, str]) -> Path:
    folders = data or settings.get("log.dirs") or settings.get("log.dir") or _DEFAULT_FOLDER
    return Path(folders.split(",")[0].strip()).absolute()


def _format(folder: Path, cluster_id: str | None, broker_id: int, users: Sequence[_User]) -> None:
    from headrace.coordination.interface import CoordinationError
    from headrace.log import meta_properties
    from headrace.log.disk import Disk

    disk = Disk()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = meta_properties.lock(disk, str(folder))
        try:
            if cluster_id is not None:
                meta_properties.claim(disk, str(folder), broker_id, cluster_id)
            if users:
                asyncio.run(_write_users(folder, users))
        finally:
            disk.close(lock)
    except (meta_properties.LogDirError, CoordinationError, OSError) as error:
        raise CommandError(f"Cannot format {folder}: {error}") from None


def _with(mechanism: str, credential: ScramCredential, configs: Mapping[str, str]) -> Mapping[str, str]:
    return {**configs, mechanism: credential.to_text()}


async def _write_users(folder: Path, users: Sequence[_User]) -> None:
    from headrace.broker.authentication.scram_users import change_user, entity_of
    from headrace.broker.lone.lone_broker import COORDINATION_FOLDER
    from headrace.coordination.client.local_client import LocalCoordination
    from headrace.coordination.tree.host import TreeHost
    from headrace.runtime.clock import SystemClock

    host = TreeHost.open(folder / COORDINATION_FOLDER, SystemClock())
    try:
        tree = LocalCoordination(host)
        for name, mechanism, credential in users:
            await change_user(tree, entity_of(name), partial(_with, mechanism, credential))
        await tree.close()
    finally:
        host.close()
