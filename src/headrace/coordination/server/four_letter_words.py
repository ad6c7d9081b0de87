"""ZooKeeper's four-letter words: a connection that begins with one gets a text, and is closed. No I/O.

Monitoring is written for them, so the names in the texts are ZooKeeper's. All that are here may always be asked;
ZooKeeper wants them listed in ``4lw.commands.whitelist``, and has more.
"""

from collections.abc import Callable

from headrace.coordination.server.service import TreeService

#: Clients look for the number of a ZooKeeper, to know what it can do.
LIKE_ZOOKEEPER = "3.9.4"

WORD_BYTES = 4


def _version(service: TreeService) -> str:
    return f"{LIKE_ZOOKEEPER}-headrace-{service.version}"


def _ruok(_: TreeService) -> str:
    return "imok"


def _isro(_: TreeService) -> str:
    return "rw"


def _envi(service: TreeService) -> str:
    return f"Environment:\nzookeeper.version={_version(service)}\n"


def _srvr(service: TreeService) -> str:
    counts, tree = service.counts, service.host.tree
    average_ms = counts.latency_sum_ms / max(1, counts.answered)
    return (
        f"Zookeeper version: {_version(service)}\n"
        f"Latency min/avg/max: 0/{average_ms:.4g}/{counts.latency_max_ms}\n"
        f"Received: {counts.received}\n"
        f"Sent: {counts.sent}\n"
        f"Connections: {len(service.dialogs)}\n"
        "Outstanding: 0\n"
        f"Zxid: {tree.last_zxid:#x}\n"
        "Mode: standalone\n"
        f"Node count: {len(tree.nodes)}\n"
    )


def _stat(service: TreeService) -> str:
    first, rest = _srvr(service).split("\n", 1)
    clients = "".join(
        f" /{dialog.peer}[1](queued=0,recved={dialog.received_count},sent={dialog.sent_count})\n"
        for dialog in service.dialogs
    )
    return f"{first}\nClients:\n{clients}\n{rest}"


def _cons(service: TreeService) -> str:
    lines = []
    for dialog in service.dialogs:
        counts = f"queued=0,recved={dialog.received_count},sent={dialog.sent_count}"
        if dialog.session is not None:
            counts += f",sid={dialog.session.id:#x},to={dialog.session.timeout_ms}"
        lines.append(f" /{dialog.peer}[1]({counts})\n")
    return "".join([*lines, "\n"])


def _wchs(service: TreeService) -> str:
    watches = service.host.tree.watches
    return f"{len(watches.session_ids)} connections watching {len(watches.paths)} paths\nTotal watches:{len(watches)}\n"


def _mntr(service: TreeService) -> str:
    counts, tree = service.counts, service.host.tree
    values = {
        "version": _version(service),
        "server_state": "standalone",
        "avg_latency": f"{counts.latency_sum_ms / max(1, counts.answered):.4g}",
        "max_latency": counts.latency_max_ms,
        "min_latency": 0,
        "packets_received": counts.received,
        "packets_sent": counts.sent,
        "num_alive_connections": len(service.dialogs),
        "outstanding_requests": 0,
        "znode_count": len(tree.nodes),
        "watch_count": len(tree.watches),
        "ephemerals_count": sum(node.ephemeral_owner != 0 for node in tree.nodes.values()),
        "approximate_data_size": sum(len(path) + node.data_length for path, node in tree.nodes.items()),
        "global_sessions": len(service.sessions),
        "stale_sessions_expired": service.sessions.expired_count,
        "last_processed_zxid": tree.last_zxid,
    }
    return "".join(f"zk_{name}\t{value}\n" for name, value in values.items())


#: A word is also the length of a frame, of some 1.6 GB: no connection begins with such a frame.
WORDS: dict[bytes, Callable[[TreeService], str]] = {
    b"ruok": _ruok,
    b"isro": _isro,
    b"envi": _envi,
    b"srvr": _srvr,
    b"stat": _stat,
    b"cons": _cons,
    b"wchs": _wchs,
    b"mntr": _mntr,
}
