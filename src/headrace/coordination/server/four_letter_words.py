"""ZooKeeper's four-letter words: commands for monitoring. A connection that starts with one gets a text and is closed.

The names in the texts are ZooKeeper's, because monitoring tools parse them. ZooKeeper has more words. No I/O.

A word is answered before any login, so a server answers only the words that ``4lw.commands.whitelist`` lists, and
``srvr``, as ZooKeeper 3.9 does. A server that requires a login answers none: the words tell about the tree and its
clients.
"""

from collections.abc import Callable

from headrace.coordination.server.service import TreeService

#: The ZooKeeper version that is reported. Clients read it to know which features the server has.
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
        f"Connections: {len(service.connections)}\n"
        "Outstanding: 0\n"
        f"Zxid: {tree.last_zxid:#x}\n"
        "Mode: standalone\n"
        f"Node count: {len(tree.nodes)}\n"
    )


def _stat(service: TreeService) -> str:
    first, rest = _srvr(service).split("\n", 1)
    clients = "".join(
        f" /{connection.peer}[1](queued=0,recved={connection.received_count},sent={connection.sent_count})\n"
        for connection in service.connections
    )
    return f"{first}\nClients:\n{clients}\n{rest}"


def _cons(service: TreeService) -> str:
    lines = []
    for connection in service.connections:
        counts = f"queued=0,recved={connection.received_count},sent={connection.sent_count}"
        if connection.session is not None:
            counts += f",sid={connection.session.id:#x},to={connection.session.timeout_ms}"
        lines.append(f" /{connection.peer}[1]({counts})\n")
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
        "num_alive_connections": len(service.connections),
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


_ALL = "*"
#: Always answered, as in ZooKeeper: its script for administrators needs it.
ALWAYS = frozenset({b"srvr"})

#: As the length of a frame, a word would mean about 1.6 GB. No connection starts with such a frame.
FOUR_LETTER_WORDS: dict[bytes, Callable[[TreeService], str]] = {
    b"ruok": _ruok,
    b"isro": _isro,
    b"envi": _envi,
    b"srvr": _srvr,
    b"stat": _stat,
    b"cons": _cons,
    b"wchs": _wchs,
    b"mntr": _mntr,
}


def enabled_words(whitelist: str) -> frozenset[bytes]:
    """Returns the words of a list in the form of ``4lw.commands.whitelist``. A star stands for all words.

    :raises ValueError: if the list has an unknown word.
    """
    listed = {word.strip() for word in whitelist.split(",")} - {""}
    if _ALL in listed:
        return frozenset(FOUR_LETTER_WORDS)
    unknown = [word for word in sorted(listed) if word.encode() not in FOUR_LETTER_WORDS]
    if unknown:
        known = ", ".join(word.decode() for word in FOUR_LETTER_WORDS)
        raise ValueError(f"{', '.join(unknown)}: not a word that the server has; there are {known}, and {_ALL} for all")
    return ALWAYS | {word.encode() for word in listed}


def answer_of(word: bytes, service: TreeService) -> str | None:
    """Returns the answer to a word; None if the bytes are no word."""
    make = FOUR_LETTER_WORDS.get(word)
    if make is None:
        return None
    if word not in service.four_letter_words:
        return f"{word.decode()} is not executed because it is not in the whitelist.\n"
    return make(service)
