"""Rows of the ACL matrix: the rules by which one request is allowed or denied, one column per rule.

Metadata with ``authorized_operations`` shows the whole effect of a user's rules on one topic and on the cluster.
"""

from __future__ import annotations

from typing import Any

from headrace.protocol.api import Api

from .cells import DENY, PREFIXED, Cell, Column, Kind, Login, Need, Op, Row, group, topic
from .rows_groups import groups
from .rows_topics import metadata_fields


def _rules(name: str, *rules: Any, login: Login = Login.USER) -> Column:
    return Column(name, lambda cell: [rule(cell) for rule in rules], login)


def _allow(op: Op, short: str = "a", **more: Any) -> Any:
    return lambda cell: cell.acl(topic(op, short), **_resolved(cell, more))


def _deny(op: Op, short: str = "a", **more: Any) -> Any:
    return lambda cell: cell.acl(topic(op, short), permission=DENY, **_resolved(cell, more))


def _resolved(cell: Cell, more: dict[str, Any]) -> dict[str, Any]:
    """``prefix=N``: a prefixed rule on the first N characters of the topic's name, counted from the end if negative."""
    if "prefix" not in more:
        return more
    name = cell.name("a")
    rest = {key: value for key, value in more.items() if key != "prefix"}
    return {**rest, "pattern": PREFIXED, "name": name[: more["prefix"]] if more["prefix"] else name}


_WHOLE = 0
_COLUMNS = (
    *(
        _rules(op.name.lower(), _allow(op))
        for op in (
            Op.ALL,
            Op.READ,
            Op.WRITE,
            Op.CREATE,
            Op.DELETE,
            Op.ALTER,
            Op.DESCRIBE,
            Op.DESCRIBE_CONFIGS,
            Op.ALTER_CONFIGS,
        )
    ),
    *(
        _rules(f"all_but_{op.name.lower()}", _allow(Op.ALL), _deny(op))
        for op in (Op.ALL, Op.READ, Op.DESCRIBE, Op.ALTER_CONFIGS, Op.DESCRIBE_CONFIGS)
    ),
    _rules("read_deny_describe", _allow(Op.READ), _deny(Op.DESCRIBE)),
    _rules("describe_deny_read", _allow(Op.DESCRIBE), _deny(Op.READ)),
    _rules("read_write_deny_read", _allow(Op.READ), _allow(Op.WRITE), _deny(Op.READ)),
    _rules("prefix", _allow(Op.READ, prefix=-1)),
    _rules("prefix_is_name", _allow(Op.READ, prefix=_WHOLE)),
    _rules("prefix_one_char", _allow(Op.READ, prefix=1)),
    _rules("prefix_deny_literal", _allow(Op.READ, prefix=-1), _deny(Op.READ)),
    _rules("literal_deny_prefix", _allow(Op.READ), _deny(Op.READ, prefix=-1)),
    _rules("prefix_deny_prefix", _allow(Op.READ, prefix=-1), _deny(Op.READ, prefix=3)),
    _rules("prefix_deny_other", _allow(Op.READ, prefix=-1), _deny(Op.READ, short="b")),
    _rules("literal_of_prefix", _allow(Op.READ, short="")),
    _rules("longer_literal", _allow(Op.READ, short="ab")),
    _rules("star", _allow(Op.READ, short="*")),
    _rules("star_deny_literal", _allow(Op.READ, short="*"), _deny(Op.READ)),
    _rules("literal_deny_star", _allow(Op.READ), _deny(Op.ALL, short="*")),
    _rules("star_prefixed", _allow(Op.READ, name="*", pattern=PREFIXED)),
    _rules("everyone", _allow(Op.READ, principal="User:*")),
    _rules("everyone_deny_me", _allow(Op.READ, principal="User:*"), _deny(Op.READ)),
    _rules("me_deny_everyone", _allow(Op.READ), _deny(Op.READ, principal="User:*")),
    _rules("another_user", _allow(Op.READ, principal="User:somebody")),
    _rules("another_type", _allow(Op.READ, principal="Group:SELF")),
    _rules("this_host", _allow(Op.READ, host="127.0.0.1")),
    _rules("another_host", _allow(Op.READ, host="10.1.2.3")),
    _rules("deny_this_host", _allow(Op.READ), _deny(Op.READ, host="127.0.0.1")),
    _rules("deny_another_host", _allow(Op.READ), _deny(Op.READ, host="10.1.2.3")),
    _rules("anonymous", _allow(Op.READ, principal="User:ANONYMOUS"), login=Login.NONE),
    _rules("anonymous_everyone", _allow(Op.READ, principal="User:*"), login=Login.NONE),
    _rules("admin_denied", _deny(Op.ALL, principal="User:admin"), login=Login.ADMIN),
)


def _metadata(cell: Cell) -> Any:
    return metadata_fields([{"topic_id": None, "name": cell.name("a")}])


def _group_columns() -> tuple[Column, ...]:
    def rules(*needs: Need) -> Any:
        return lambda cell: [cell.acl(need) for need in needs]

    return (
        *tuple(
            Column(op.name.lower(), rules(group(op)))
            for op in (Op.ALL, Op.READ, Op.DELETE, Op.DESCRIBE, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS)
        ),
        Column("star", rules(Need(Op.READ, Kind.GROUP, "*"))),
        Column("topic_star", rules(Need(Op.ALL, Kind.TOPIC, "*"))),
    )


ROWS = (
    Row("rules", Api.METADATA, 8, _metadata, (), (), ("a",), columns=_COLUMNS),
    Row(
        "rules_group",
        Api.DESCRIBE_GROUPS,
        6,
        lambda cell: {"groups": [cell.name("g")], "include_authorized_operations": True},
        (),
        (),
        ("a",),
        prepare=groups,
        columns=_group_columns(),
    ),
    Row(
        "rules_cluster",
        Api.DESCRIBE_CLUSTER,
        0,
        lambda _: {"include_cluster_authorized_operations": True},
        columns=tuple(
            Column(op.name.lower(), lambda cell, op=op: [cell.acl(Need(op, Kind.CLUSTER, "kafka-cluster"))])
            for op in (
                Op.ALL,
                Op.CREATE,
                Op.ALTER,
                Op.DESCRIBE,
                Op.CLUSTER_ACTION,
                Op.DESCRIBE_CONFIGS,
                Op.ALTER_CONFIGS,
                Op.IDEMPOTENT_WRITE,
            )
        ),
    ),
)
